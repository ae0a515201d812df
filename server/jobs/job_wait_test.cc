// Jobs that cannot start yet, and those behind them.

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/errors/errors.h"
#include "server/jobs/job_controller_for_test.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

using JobWaitTest = JobControllerTest;

TEST_F(JobWaitTest, OneThatCouldNotStartStopsNobody) {
  Accept("high", /*max_attempts=*/2, /*priority=*/5);
  TickUntilRunning("high");
  runner_->Fail("RESOURCE_EXHAUSTED", "7 GiB of device memory are needed");
  Tick();
  Accept("low");
  TickUntilRunning("low");
  clock_.Advance(absl::Minutes(1));  // "high" may be tried again when the engine is free
  Tick();
  EXPECT_EQ(Get("low").state(), v1::JOB_STATE_RUNNING);
  FinishRun("low");
  materials_->Answer();
  Tick();
  TickUntilRunning("high");
}

TEST_F(JobWaitTest, AJobWaitsForRoomForItsCheckpoint) {
  Accept("a");
  checkpoints_->room = WithReason(absl::ResourceExhaustedError("7 bytes"), "DISK_SPACE_EXCEEDED");
  Tick();
  Tick();
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(Get("a").reason().code(), "DISK_SPACE_EXCEEDED");
  checkpoints_->room = absl::OkStatus();
  Restart();  // and all that is remembered is in the store
  TickUntilRunning("a");
  EXPECT_FALSE(Get("a").has_reason()) << "that wait is over";
}

TEST_F(JobWaitTest, AStoreThatIsFullIsNoUnreadableCheckpoint) {
  Accept("a");
  checkpoints_->reading = WithReason(absl::ResourceExhaustedError("disk is full"), "DISK_FULL");
  Tick();
  materials_->Answer();
  Tick();
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(Get("a").reason().code(), "DISK_FULL");
  EXPECT_EQ(Get("a").reason().message(), "disk is full; it is tried again in 10s and at a resume");
}

TEST_F(JobWaitTest, ADiskThatDoesNotTellItsRoomIsAReason) {
  Accept("a");
  checkpoints_->room = absl::UnknownError("cannot ask for the disk of /jobs");
  Tick();
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(Get("a").reason().code(), "DISK_FAILED");
  EXPECT_EQ(Get("a").reason().message(), "cannot ask for the disk of /jobs");
}

TEST_F(JobWaitTest, AStartThatTheDiskDoesNotGiveIsWaitedForAndOthersPass) {
  Accept("a");
  TickUntilRunning("a");
  EngineSaves("a", 3);
  runner_->Die("killed by signal 9");
  Tick();
  Accept("b");
  checkpoints_->reading = absl::UnknownError("cannot list /jobs/a/checkpoints");
  Tick();
  materials_->Answer();
  Tick();
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(Get("a").reason().code(), "CHECKPOINT_UNREADABLE");
  EXPECT_THAT(Get("a").reason().message(), HasSubstr("tried again in 10s"));
  EXPECT_THAT(Get("a").reason().message(), HasSubstr("megatrain resume a --from CHECKPOINT"));
  EXPECT_EQ(Get("a").attempt(), 2) << "it is no crash";
  checkpoints_->reading = absl::OkStatus();
  TickUntilRunning("b");
  FinishRun("b");
  materials_->Answer();
  clock_.Advance(absl::Seconds(10));
  Tick();
  TickUntilRunning("a");
  EXPECT_EQ(runner_->Running().resume_checkpoint_path(), "/jobs/a/checkpoints/step-00000003");
  runner_->Fail("CHECKPOINT_UNREADABLE", "adam_m.bin: input/output error");
  Tick();
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_QUEUED);
  EXPECT_TRUE(checkpoint_disk_.rows["jobs/a"][0].damage().empty()) << "an error is no damage";
}

TEST_F(JobWaitTest, MemoryThatOthersHoldIsWaitedForLongerFromTimeToTime) {
  Accept("a", /*max_attempts=*/1);
  for (const int seconds : {10, 20, 40}) {
    TickUntilRunning("a");
    runner_->Fail("RESOURCE_EXHAUSTED", "7 GiB of device memory are needed");
    Tick();
    EXPECT_EQ(Get("a").state(), v1::JOB_STATE_QUEUED);
    EXPECT_EQ(Get("a").reason().code(), "RESOURCE_EXHAUSTED");
    EXPECT_THAT(Get("a").reason().message(), HasSubstr("7 GiB of device memory are needed"));
    EXPECT_EQ(Get("a").attempt(), 1);
    clock_.Advance(absl::Seconds(seconds - 2));
    Tick();
    EXPECT_EQ(Get("a").state(), v1::JOB_STATE_QUEUED) << seconds;
    clock_.Advance(absl::Seconds(1));
  }
  TickUntilRunning("a");
  v1::StepRecord step;
  step.set_step(1);
  runner_->EmitStep(step);
  Tick();
  runner_->Fail("RESOURCE_EXHAUSTED", "the disk is full at the export");
  Tick();
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_FAILED) << "it had begun";
}

TEST_F(JobWaitTest, AnErrorOfTheSystemIsTriedAgainAndAfterAStepCountsAsACrash) {
  Accept("a", /*max_attempts=*/2);
  TickUntilRunning("a");
  runner_->Fail("UNKNOWN", "cannot read tokens.bin: Input/output error");
  Tick();
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(Get("a").attempt(), 1);
  clock_.Advance(absl::Seconds(10));
  for (const v1::JobState then : {v1::JOB_STATE_QUEUED, v1::JOB_STATE_FAILED}) {
    TickUntilRunning("a");
    v1::StepRecord step;
    step.set_step(1);
    runner_->EmitStep(step);
    Tick();
    EXPECT_EQ(Get("a").reason().code(), then == v1::JOB_STATE_QUEUED ? "" : "UNKNOWN")
        << "a wait is over, a crash is told";
    runner_->Fail("UNKNOWN", "cannot read tokens.bin: Input/output error");
    Tick();
    EXPECT_EQ(Get("a").state(), then);
  }
}

TEST_F(JobWaitTest, NobodyIsStoppedForAJobThatCannotStart) {
  Accept("low");
  TickUntilRunning("low");
  Accept("high", /*max_attempts=*/2, /*priority=*/5);
  checkpoints_->room = WithReason(absl::ResourceExhaustedError("7 bytes"), "DISK_SPACE_EXCEEDED");
  Tick();
  EXPECT_EQ(Get("low").state(), v1::JOB_STATE_RUNNING);
  checkpoints_->room = absl::OkStatus();
  runner_->EmitCheckpointFailure("DISK_FULL");
  Tick();
  Tick();
  EXPECT_EQ(Get("low").phase(), "holding") << "its state is in memory only";
  EXPECT_FALSE(runner_->save_asked.has_value());
}

TEST_F(JobWaitTest, AWaitEndsWhenItsUserHasItGoOn) {
  Accept("a");
  for (int i = 0; i < 3; ++i) {
    TickUntilRunning("a");
    runner_->Fail("RESOURCE_EXHAUSTED", "7 GiB of device memory are needed");
    Tick();
    Tick();
    EXPECT_EQ(Get("a").state(), v1::JOB_STATE_QUEUED);
    EXPECT_THAT(Get("a").reason().message(), HasSubstr("tried again in 10s")) << "from the first";
    Wish("a", JobWish::Kind::kResume);
  }
  TickUntilRunning("a");
}

}  // namespace
}  // namespace megatrain
