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
  EXPECT_TRUE(progress_.Follow(TrainPhase::kExporting)(1, 2).ok()) << "the work is done by then";
}

}  // namespace
}  // namespace megatrain
