#include "runtime/trainer/stall_detector.h"

#include <string>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace megatrain {
namespace {

constexpr absl::Duration kSecond = absl::Seconds(1);

StreamProgress& Stream(JobLook& look, StreamKind kind) {
  return (*look.pipeline)[static_cast<int>(kind)];
}

// A pipeline in which compute works on layer 3 and h2d waits for its slot; the others are idle.
JobLook Training() {
  JobLook look{.pipeline = PipelineProgress()};
  Stream(look, StreamKind::kCompute).operation = "layer_forward unit 3 micro-batch 0";
  Stream(look, StreamKind::kHostToDevice).operation = "load_weights unit 5";
  return look;
}

// The same `duration` later, with nothing done.
JobLook Later(JobLook look, absl::Duration duration) {
  Stream(look, StreamKind::kCompute).figures.busy += duration;
  const auto slot_free = static_cast<int>(WaitReason::kSlotFree);
  Stream(look, StreamKind::kHostToDevice).figures.waits[slot_free] += duration;
  return look;
}

TEST(StallDetectorTest, TimeWithoutAnOperationThatEndsAddsUp) {
  StallDetector detector;
  JobLook look = Training();
  EXPECT_EQ(detector.Take(look, 100 * kSecond), absl::ZeroDuration());
  look = Later(look, kSecond);
  EXPECT_EQ(detector.Take(look, 101 * kSecond), kSecond);
  look = Later(look, 2 * kSecond);
  EXPECT_EQ(detector.Take(look, 103 * kSecond), 3 * kSecond);
  EXPECT_EQ(detector.Describe(),
            "compute is in layer_forward unit 3 micro-batch 0; "
            "h2d waits for slot_free before load_weights unit 5");
  ++Stream(look, StreamKind::kDeviceToHost).figures.operation_count;
  EXPECT_EQ(detector.Take(look, 104 * kSecond), absl::ZeroDuration()) << "any stream is progress";
}

TEST(StallDetectorTest, WhoHasNothingToDoDoesNotStall) {
  StallDetector detector;
  JobLook look{.pipeline = PipelineProgress()};
  for (int second = 0; second < 100; ++second) {
    EXPECT_EQ(detector.Take(look, second * kSecond), absl::ZeroDuration());
  }
  EXPECT_EQ(detector.Take(JobLook(), 101 * kSecond), absl::ZeroDuration());
  EXPECT_EQ(detector.Take(JobLook(), 102 * kSecond), absl::ZeroDuration());
}

TEST(StallDetectorTest, LongWorkMustBeat) {
  StallDetector detector;
  JobLook look{.phase = "loading"};
  detector.Take(look, kSecond);
  EXPECT_EQ(detector.Take(look, 3 * kSecond), 2 * kSecond);
  EXPECT_EQ(detector.Describe(), "loading does not go on");
  ++look.beat_count;
  EXPECT_EQ(detector.Take(look, 4 * kSecond), absl::ZeroDuration());
  EXPECT_EQ(detector.Take(look, 5 * kSecond), kSecond);
  look.phase = "exporting";
  EXPECT_EQ(detector.Take(look, 6 * kSecond), absl::ZeroDuration());
}

TEST(StallDetectorTest, AProcessThatStoodStillAsAWholeDoesNotCount) {
  StallDetector detector;
  JobLook look = Training();
  detector.Take(look, kSecond);
  look = Later(look, absl::Hours(1));
  EXPECT_EQ(detector.Take(look, absl::Hours(1)), StallDetector::kLongestGap);
}

}  // namespace
}  // namespace megatrain
