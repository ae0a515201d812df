#include "runtime/trainer/job_progress.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/virtual_clock.h"
#include "runtime/trainer/recording_observer.h"
#include "runtime/trainer/watchdog.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class JobProgressTest : public ::testing::Test {
 protected:
  VirtualClock clock_;
  RecordingObserver observer_;
  Watchdog watchdog_{clock_, absl::Hours(1),
                     [this](const std::string& what) { observer_.OnStall(what); }};
  JobProgress progress_{clock_, observer_, watchdog_};
};

TEST_F(JobProgressTest, ShortWorkIsNotToldOf) {
  progress_.Begin(TrainPhase::kLoading);
  const ByteProgress preparing = progress_.FollowUntilStop(TrainPhase::kPreparingMemory);
  for (int64_t done_bytes = 1; done_bytes <= 4; ++done_bytes) {
    clock_.Advance(absl::Seconds(1));
    EXPECT_TRUE(preparing(done_bytes, 4).ok());
  }
  progress_.Begin(TrainPhase::kLoading);
  EXPECT_THAT(observer_.phases, ElementsAre(TrainPhase::kLoading));
  EXPECT_THAT(observer_.progress, IsEmpty());
}

TEST_F(JobProgressTest, LongWorkIsToldOfNowAndThenAndWhatFollowsToo) {
  progress_.Begin(TrainPhase::kLoading);
  const ByteProgress preparing = progress_.FollowUntilStop(TrainPhase::kPreparingMemory);
  for (int64_t done_bytes = 1; done_bytes <= 12; ++done_bytes) {
    clock_.Advance(absl::Seconds(1));
    EXPECT_TRUE(preparing(done_bytes, 12).ok());
  }
  EXPECT_THAT(observer_.progress,
              ElementsAre(RecordingObserver::Progress{TrainPhase::kPreparingMemory, 5, 12},
                          RecordingObserver::Progress{TrainPhase::kPreparingMemory, 10, 12}));
  progress_.Begin(TrainPhase::kLoading);
  EXPECT_THAT(observer_.phases, ElementsAre(TrainPhase::kLoading, TrainPhase::kLoading));
}

TEST_F(JobProgressTest, AWishToStopEndsWhatMayBeEnded) {
  observer_.stop_after = 0;
  EXPECT_EQ(progress_.FollowUntilStop(TrainPhase::kPinning)(1, 2).code(),
            absl::StatusCode::kCancelled);
  EXPECT_TRUE(progress_.FollowWrite(TrainPhase::kExporting, {})(1, 2).ok())
      << "the work is done by then";
}

TEST_F(JobProgressTest, ADiskThatHangsIsToldOfEachTimeAndEndsNothing) {
  const ByteProgress writing = progress_.FollowWrite(
      TrainPhase::kSaving, {.step = 7, .trigger = CheckpointTrigger::kPause, .status = {}});
  for (size_t hangs = 1; hangs <= 2; ++hangs) {
    EXPECT_TRUE(writing(1, 2).ok());
    for (int i = 0; i < 1000; ++i) {
      clock_.Advance(absl::Seconds(10));
      watchdog_.Look();
    }
    EXPECT_EQ(observer_.disk_waits.size(), hangs) << "told once of each";
  }
  EXPECT_EQ(observer_.disk_waits[0].step, 7);
  EXPECT_EQ(observer_.disk_waits[0].trigger, CheckpointTrigger::kPause);
  EXPECT_THAT(std::string(observer_.disk_waits[0].status.message()),
              HasSubstr("saving does not go on: the disk takes nothing"));
  EXPECT_THAT(observer_.stalls, IsEmpty());
  progress_.FollowUntilStop(TrainPhase::kLoading)(1, 2).IgnoreError();
  for (int i = 0; i < 1000; ++i) {
    clock_.Advance(absl::Seconds(10));
    watchdog_.Look();
  }
  EXPECT_EQ(observer_.stalls.size(), 1U) << "what does not only write is another matter";
}

}  // namespace
}  // namespace megatrain
