// Jobs that are saved, paused, held up, put back and gone on with.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/jobs/job_controller_for_test.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using JobInterruptionTest = JobControllerTest;

TEST_F(JobInterruptionTest, DrainPutsTheRunningJobBackWithoutAnAttemptMore) {
  Accept("a");
  TickUntilRunning("a");
  controller_->Drain();
  Tick();
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_PAUSING);
  EXPECT_EQ(runner_->LastSave().trigger, v1::CHECKPOINT_TRIGGER_DRAIN);
  EXPECT_TRUE(runner_->LastSave().then_stop);
  EXPECT_FALSE(controller_->Idle());
  EngineSaves("a", 3);
  runner_->Pause("step-00000003");
  Tick();
  EXPECT_TRUE(controller_->Idle());
  EXPECT_EQ(observer_.drained, 1);
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(Get("a").attempt(), 1);
  Tick();
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_QUEUED);
  Restart();
  TickUntilRunning("a");
  EXPECT_EQ(runner_->Running().resume_checkpoint_path(), "/jobs/a/checkpoints/step-00000003");
}

TEST_F(JobInterruptionTest, DrainOfAJobThatHoldsStopsIt) {
  Accept("a");
  TickUntilRunning("a");
  controller_->Drain();
  Tick();
  runner_->EmitCheckpointFailure("DISK_FULL");
  Tick();
  EXPECT_TRUE(runner_->stop_asked);
  runner_->ReportStopped();
  Tick();
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(Get("a").attempt(), 1);
}

TEST_F(JobInterruptionTest, DrainOfAJobThatHoldsTriesOnceToSaveIt) {
  for (const std::string id : {"a", "b"}) {
    Accept(id);
    TickUntilRunning(id);
    if (id == "b") {
      Wish(id, JobWish::Kind::kPause);
      Tick();
    }
    runner_->EmitCheckpointFailure("DISK_FULL");
    Tick();
    EXPECT_EQ(Get(id).phase(), "holding");
    runner_->save_asked.reset();
    controller_->Drain();
    Tick();
    EXPECT_FALSE(runner_->stop_asked) << id;
    ASSERT_TRUE(runner_->save_asked.has_value()) << id;
    EXPECT_EQ(runner_->LastSave().trigger, v1::CHECKPOINT_TRIGGER_DRAIN);
    EXPECT_TRUE(runner_->LastSave().then_stop);
    EXPECT_EQ(Get(id).phase(), "saving");
    Tick();
    EXPECT_FALSE(runner_->stop_asked) << id;
    if (id == "b") {
      runner_->EmitCheckpointFailure("DISK_FULL");
      Tick();
      EXPECT_TRUE(runner_->stop_asked) << "nobody is left who could make room";
      runner_->ReportStopped();
    } else {
      EngineSaves(id, 3);
      runner_->Pause("step-00000003");
    }
    Tick();
    EXPECT_EQ(Get(id).state(), v1::JOB_STATE_QUEUED);
    EXPECT_EQ(Get(id).last_checkpoint(), id == "a" ? "jobs/a/checkpoints/step-00000003" : "");
    Wish(id, JobWish::Kind::kPause);
    Restart();
  }
}

TEST_F(JobInterruptionTest, DrainDoesNotWaitForADiskThatHangs) {
  Accept("a");
  TickUntilRunning("a");
  runner_->EmitCheckpointFailure("DISK_STALLED");
  Tick();
  controller_->Drain();
  Tick();
  EXPECT_TRUE(runner_->stop_asked);
}

TEST_F(JobInterruptionTest, AJobIsPausedWithItsStateAndGoesOnFromIt) {
  Accept("a");
  Accept("b");
  TickUntilRunning("a");
  Wish("a", JobWish::Kind::kPause);
  Tick();
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_PAUSING);
  EXPECT_EQ(runner_->LastSave().trigger, v1::CHECKPOINT_TRIGGER_PAUSE);
  EngineSaves("a", 3);
  disk_.output_folders.insert(runner_->Running().output_path());
  runner_->Pause("step-00000003");
  Tick();
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_PAUSED);
  EXPECT_EQ(Get("a").last_checkpoint(), "jobs/a/checkpoints/step-00000003");
  EXPECT_TRUE(disk_.output_folders.empty()) << "an export that failed is in nobody's way";
  TickUntilRunning("b");  // the engine is free
  Wish("a", JobWish::Kind::kResume);
  Tick();
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_QUEUED);
  FinishRun("b");
  materials_->Answer();
  Tick();
  TickUntilRunning("a");
  EXPECT_EQ(Get("a").attempt(), 1);
  EXPECT_EQ(Get("a").resumed_from(), "jobs/a/checkpoints/step-00000003");
  EXPECT_EQ(runner_->Running().resume_checkpoint_path(), "/jobs/a/checkpoints/step-00000003");
}

TEST_F(JobInterruptionTest, AJobThatWaitsOrIsPreparedIsHeld) {
  Accept("a");
  Accept("b");
  Wish("b", JobWish::Kind::kPause);
  Tick();
  EXPECT_TRUE(Get("b").held());
  Wish("a", JobWish::Kind::kPause);
  Tick();
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_QUEUED);
  Tick();
  EXPECT_TRUE(Get("a").held());
  EXPECT_TRUE(controller_->Idle());
  Wish("b", JobWish::Kind::kResume);
  Tick();
  EXPECT_FALSE(Get("b").held());
  TickUntilRunning("b");
}

TEST_F(JobInterruptionTest, APauseWhoseSaveFailedIsTriedAgainByAPause) {
  Accept("a");
  TickUntilRunning("a");
  Wish("a", JobWish::Kind::kPause);
  Tick();
  runner_->save_asked.reset();
  runner_->EmitCheckpointFailure("DISK_FULL");
  Tick();
  EXPECT_EQ(Get("a").phase(), "holding");
  EXPECT_FALSE(runner_->save_asked.has_value());
  Wish("a", JobWish::Kind::kPause);
  Tick();
  EXPECT_TRUE(runner_->save_asked.has_value());
  EXPECT_EQ(Get("a").phase(), "saving") << "whether it holds is not known again yet";
  EXPECT_FALSE(Get("a").has_reason());
  runner_->EmitCheckpointFailure("DISK_FULL");
  Tick();
  EXPECT_EQ(Get("a").phase(), "holding");
  EXPECT_EQ(Get("a").reason().code(), "DISK_FULL");
}

TEST_F(JobInterruptionTest, AJobThatHoldsIsPaused) {
  Accept("a");
  TickUntilRunning("a");
  runner_->EmitCheckpointFailure("DISK_FULL");
  Tick();
  Wish("a", JobWish::Kind::kPause);
  Tick();
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_PAUSING);
  EXPECT_EQ(Get("a").phase(), "saving");
  EXPECT_FALSE(Get("a").has_reason());
}

TEST_F(JobInterruptionTest, APreemptionWhoseSaveFailedIsTriedAgainByAPause) {
  Accept("low");
  TickUntilRunning("low");
  Accept("high", /*max_attempts=*/2, /*priority=*/5);
  Tick();
  runner_->EmitCheckpointFailure("DISK_FULL");
  Tick();
  runner_->save_asked.reset();
  Wish("low", JobWish::Kind::kPause);
  Tick();
  EXPECT_TRUE(runner_->save_asked.has_value());
}

TEST_F(JobInterruptionTest, APausedJobIsCancelled) {
  Accept("a");
  TickUntilRunning("a");
  Wish("a", JobWish::Kind::kPause);
  Tick();
  EngineSaves("a", 3);
  runner_->Pause("step-00000003");
  Tick();
  Cancel("a");
  Tick();
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_CANCELLED);
}

TEST_F(JobInterruptionTest, AJobWhoseSaveFailsHoldsUntilItIsSaved) {
  Accept("a");
  TickUntilRunning("a");
  runner_->EmitCheckpointFailure("DISK_FULL");
  Tick();
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Get("a").phase(), "holding");
  EXPECT_EQ(Get("a").reason().code(), "DISK_FULL");
  EXPECT_FALSE(runner_->save_asked.has_value());
  Wish("a", JobWish::Kind::kResume);
  Tick();
  EXPECT_EQ(runner_->LastSave().trigger, v1::CHECKPOINT_TRIGGER_MANUAL);
  EXPECT_FALSE(runner_->LastSave().then_stop);
  EXPECT_EQ(Get("a").phase(), "saving");
  EXPECT_FALSE(Get("a").has_reason());
  EngineSaves("a", 3);
  Tick();
  EXPECT_EQ(Get("a").phase(), "saving") << "the engine tells the next one";
  EXPECT_FALSE(Get("a").has_reason());
  EXPECT_EQ(observer_.checkpoints, 1);
}

TEST_F(JobInterruptionTest, ASaveThatHangsStillGoesOn) {
  Accept("a", /*max_attempts=*/3);
  TickUntilRunning("a");
  Wish("a", JobWish::Kind::kSave);
  Tick();
  runner_->EmitCheckpointFailure("DISK_STALLED");
  Tick();
  EXPECT_EQ(Get("a").phase(), "holding");
  runner_->Die("killed by signal 9");
  Tick();
  TickUntilRunning("a");
  ASSERT_TRUE(runner_->save_asked.has_value()) << "nobody told of it";
  runner_->EmitCheckpointFailure("DISK_STALLED");
  Tick();
  Wish("a", JobWish::Kind::kPause);
  Tick();
  EXPECT_EQ(Get("a").phase(), "holding") << "it waits for the disk, whatever is asked for";
  EngineSaves("a", 3);
  Tick();
  EXPECT_EQ(Get("a").phase(), "");
  EXPECT_FALSE(Get("a").has_reason());
}

TEST_F(JobInterruptionTest, ASaveIsAskedForOnce) {
  Accept("a");
  TickUntilRunning("a");
  Wish("a", JobWish::Kind::kSave);
  Tick();
  EXPECT_EQ(runner_->LastSave().trigger, v1::CHECKPOINT_TRIGGER_MANUAL);
  runner_->save_asked.reset();
  Tick();
  EXPECT_FALSE(runner_->save_asked.has_value());
}

TEST_F(JobInterruptionTest, ASaveThatNobodyToldOfIsAskedForAgainAfterACrash) {
  Accept("a", /*max_attempts=*/3);
  TickUntilRunning("a");
  Wish("a", JobWish::Kind::kSave);
  Tick();
  ASSERT_TRUE(runner_->save_asked.has_value());
  runner_->Die("killed by signal 9");
  Tick();
  TickUntilRunning("a");
  ASSERT_TRUE(runner_->save_asked.has_value()) << "of the next engine";
  Restart();
  TickUntilRunning("a");
  ASSERT_TRUE(runner_->save_asked.has_value()) << "of the next server";
  EngineSaves("a", 3);
  runner_->Die("killed by signal 9");
  Tick();
  TickUntilRunning("a");
  EXPECT_FALSE(runner_->save_asked.has_value()) << "it was answered";
}

TEST_F(JobInterruptionTest, ADamagedCheckpointIsPassedOver) {
  Accept("a");
  TickUntilRunning("a");
  EngineSaves("a", 3);
  EngineSaves("a", 6);
  runner_->Die("killed by signal 9");
  Tick();
  TickUntilRunning("a");
  EXPECT_EQ(runner_->Running().resume_checkpoint_path(), "/jobs/a/checkpoints/step-00000006");
  runner_->Fail("CHECKPOINT_CORRUPT", "adam_m.bin: bytes 0 to 7");
  Tick();
  EXPECT_EQ(Get("a").attempt(), 2) << "it is no crash";
  TickUntilRunning("a");
  EXPECT_EQ(runner_->Running().resume_checkpoint_path(), "/jobs/a/checkpoints/step-00000003");
}

TEST_F(JobInterruptionTest, CrashesAreCountedFromTheNewestCheckpointOn) {
  Accept("a", /*max_attempts=*/2);
  for (int i = 1; i <= 4; ++i) {
    TickUntilRunning("a");
    EngineSaves("a", i);
    runner_->Die("killed by signal 9");
    Tick();
    EXPECT_EQ(Get("a").state(), v1::JOB_STATE_QUEUED);
  }
  TickUntilRunning("a");
  runner_->Die("killed by signal 9");
  Tick();
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_FAILED) << "twice at the same step";
  EXPECT_EQ(Get("a").attempt(), 5);
}

TEST_F(JobInterruptionTest, ACheckpointThatCannotBeRecordedHoldsNothingUp) {
  Accept("a");
  Accept("b");
  TickUntilRunning("a");
  recording_checkpoints_ = absl::UnknownError("cannot read manifest.json");
  EngineSaves("a", 3);
  Tick();
  EXPECT_EQ(Get("a").last_checkpoint(), "");
  EXPECT_THAT(*log_.Read("a", 0, 10000), HasSubstr("cannot read manifest.json"));
  recording_checkpoints_ = absl::OkStatus();
  clock_.Advance(absl::Seconds(10));
  Tick();
  EXPECT_EQ(Get("a").last_checkpoint(), "jobs/a/checkpoints/step-00000003") << "tried again";
  recording_checkpoints_ = absl::UnknownError("cannot read manifest.json");
  EngineSaves("a", 6);
  Tick();
  CancelWhileItRuns("a");
  TickUntilRunning("b");
}

TEST_F(JobInterruptionTest, APauseWhoseCheckpointIsNotRecordedYetLosesNoStep) {
  Accept("a");
  TickUntilRunning("a");
  Wish("a", JobWish::Kind::kPause);
  Tick();
  recording_checkpoints_ = absl::UnknownError("cannot read manifest.json");
  EngineSaves("a", 3);
  runner_->Pause("step-00000003");
  Tick();
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_PAUSED);
  recording_checkpoints_ = absl::OkStatus();
  Wish("a", JobWish::Kind::kResume);
  Tick();
  TickUntilRunning("a");
  EXPECT_EQ(runner_->Running().resume_checkpoint_path(), "/jobs/a/checkpoints/step-00000003");
}

TEST_F(JobInterruptionTest, AJobWithoutAWholeCheckpointSaysThatItBeginsAnew) {
  Accept("a");
  TickUntilRunning("a");
  EngineSaves("a", 3);
  runner_->Die("killed by signal 9");
  Tick();
  TickUntilRunning("a");
  runner_->Fail("CHECKPOINT_CORRUPT", "adam_m.bin: bytes 0 to 7");
  Tick();
  TickUntilRunning("a");
  EXPECT_EQ(runner_->Running().resume_checkpoint_path(), "");
  EXPECT_EQ(Get("a").reason().code(), "CHECKPOINTS_LOST");
  EXPECT_THAT(Get("a").reason().message(),
              HasSubstr("begins at its first step, since jobs/a/checkpoints/step-00000003 is "
                        "damaged: adam_m.bin: bytes 0 to 7"));
  EXPECT_THAT(*log_.Read("a", 0, 10000), HasSubstr("begins at its first step"));
}

TEST_F(JobInterruptionTest, FiguresLostOnTheirWayAreThoseOfTheCheckpoint) {
  Accept("a");
  TickUntilRunning("a");
  v1::StepRecord step;
  step.set_step(1);
  step.set_loss(0.5);
  runner_->EmitStep(step);
  Tick();
  checkpoint_disk_.folders["jobs/a"]["step-00000003"] = 3;  // and then all died
  Restart();
  for (const int64_t each : {1, 2, 3}) {
    v1::JobEvent event;
    event.mutable_step()->set_step(each);
    event.mutable_step()->set_loss(1.0 / static_cast<double>(1 + each));
    checkpoints_->figures.push_back(event);
  }
  TickUntilRunning("a");
  const auto events = store_.Events("jobs/a", 0, 100);
  std::vector<int64_t> steps;
  for (const v1::JobEvent& event : *events) {
    if (event.has_step()) {
      steps.push_back(event.step().step());
      EXPECT_EQ(event.step().loss(), 1.0 / static_cast<double>(1 + event.step().step()));
    }
  }
  EXPECT_THAT(steps, ElementsAre(1, 2, 3));
  EXPECT_EQ(Get("a").last_step().step(), 3);
}

TEST_F(JobInterruptionTest, AJobOfHigherPriorityTakesTheEngineAndTheOtherGoesOnLater) {
  Accept("low");
  TickUntilRunning("low");
  Accept("equal");
  Tick();
  EXPECT_FALSE(runner_->save_asked.has_value());
  Accept("high", /*max_attempts=*/2, /*priority=*/5);
  Tick();
  EXPECT_EQ(Get("low").state(), v1::JOB_STATE_PAUSING);
  EXPECT_EQ(runner_->LastSave().trigger, v1::CHECKPOINT_TRIGGER_PREEMPT);
  EXPECT_TRUE(runner_->LastSave().then_stop);
  EngineSaves("low", 3);
  runner_->Pause("step-00000003");
  Tick();
  EXPECT_EQ(Get("low").state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(Get("low").reason().code(), "PREEMPTED");
  EXPECT_EQ(Get("low").reason().message(), "jobs/high has a higher priority");
  EXPECT_EQ(Get("low").attempt(), 1);
  EXPECT_EQ(observer_.preempted, 1);
  TickUntilRunning("high");
  FinishRun("high");
  materials_->Answer();
  Tick();
  TickUntilRunning("low");
  EXPECT_EQ(runner_->Running().resume_checkpoint_path(), "/jobs/low/checkpoints/step-00000003");
}

TEST_F(JobInterruptionTest, AnEngineThatSomebodyStoppedPutsItsJobBack) {
  Accept("a");
  TickUntilRunning("a");
  EngineSaves("a", 3);
  runner_->Pause("step-00000003");
  Tick();
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(Get("a").attempt(), 1);
  TickUntilRunning("a");
}

}  // namespace
}  // namespace megatrain
