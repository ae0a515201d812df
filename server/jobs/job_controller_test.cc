#include "server/jobs/job_controller.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/posix_file_system.h"
#include "runtime/base/virtual_clock.h"
#include "server/errors/errors.h"
#include "server/jobs/memory_job_store.h"
#include "server/jobs/scripted_job_checkpoints.h"
#include "server/jobs/scripted_job_materials.h"
#include "server/jobs/scripted_job_runner.h"
#include "server/resources/timestamp.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RecordingObserver final : public JobObserver {
 public:
  void OnChange(const v1::Job&) override { ++changes; }
  void OnLog(const v1::Job&) override {}
  void OnStep(const v1::Job&, const v1::StepRecord&) override { ++steps; }
  void OnCheckpoint(const v1::Job&, const engine::v1::CheckpointSaved&) override { ++checkpoints; }
  void OnCheckpointFailure(const v1::Job&, const v1::CheckpointFailure&) override {}
  void OnEvaluation(const v1::Job&, const v1::EvaluationRecord&) override {}
  void OnDrained(const v1::Job&) override { ++drained; }
  void OnRecovered(const v1::Job&) override {}
  void OnEnd(const v1::Job& job) override { ended.push_back(job.state()); }
  void OnFigures(const engine::v1::StreamFigures&) override {}
  void OnActiveJobs(const std::vector<JobRecord>&) override {}

  int changes = 0;
  int steps = 0;
  int checkpoints = 0;
  int drained = 0;
  std::vector<v1::JobState> ended;
};

class JobControllerTest : public ::testing::Test {
 protected:
  void SetUp() override { Restart(); }

  // A new daemon over the same store and disk; the engine died with the old one.
  void Restart() {
    controller_.reset();
    runner_ = std::make_unique<ScriptedJobRunner>();
    materials_ = std::make_unique<ScriptedJobMaterials>(disk_);
    checkpoints_ =
        std::make_unique<ScriptedJobCheckpoints>(checkpoint_disk_, [] { return absl::OkStatus(); });
    checkpoints_->Reconcile();
    controller_ = std::make_unique<JobController>(
        JobController::Parts{store_, *runner_, *materials_, *checkpoints_, log_, observer_}, [] {});
  }

  void Accept(const std::string& id, int max_attempts = 2) {
    v1::Job job;
    job.set_name("jobs/" + id);
    job.set_state(v1::JOB_STATE_QUEUED);
    job.set_attempt(1);
    job.mutable_spec()->set_output("models/" + id);
    job.mutable_spec()->mutable_retry()->set_max_attempts(max_attempts);
    ASSERT_TRUE(store_.Create({"CreateJob", "", ""}, job).ok());
  }

  void Cancel(const std::string& id) {
    ASSERT_TRUE(store_.RecordWish({"CancelJob", "", ""}, "jobs/" + id, JobWish()).ok());
  }

  void Wish(const std::string& id, JobWish::Kind kind) {
    ASSERT_TRUE(store_.RecordWish({"Wish", "", ""}, "jobs/" + id, {.kind = kind}).ok());
  }

  // The engine commits a checkpoint of the running job.
  void EngineSaves(const std::string& id, int64_t step) {
    const std::string checkpoint = absl::StrCat("step-0000000", step);
    checkpoint_disk_.folders["jobs/" + id][checkpoint] = step;
    runner_->EmitCheckpoint(checkpoint, step);
  }

  void Tick() {
    clock_.Advance(absl::Seconds(1));
    ASSERT_TRUE(controller_->Tick(clock_.WallNow()).ok());
  }

  // Until the engine works on the job of that ID.
  void TickUntilRunning(const std::string& id) {
    Tick();
    materials_->Answer();
    Tick();
    ASSERT_TRUE(runner_->running.has_value());
    EXPECT_EQ(runner_->running->name(), "jobs/" + id);
    runner_->EmitStarted(10);
    Tick();
    EXPECT_EQ(Get(id).state(), v1::JOB_STATE_RUNNING);
  }

  void FinishRun(const std::string& id) {
    disk_.output_folders.insert(materials_->OutputFolder(Get(id)));
    runner_->Finish();
    Tick();
  }

  v1::Job Get(const std::string& id) { return store_.Get("jobs/" + id)->job; }

  VirtualClock clock_;
  MemoryJobStore store_;
  ScriptedDisk disk_;
  PosixFileSystem files_;
  JobLog log_{files_, ::testing::TempDir() + "/" +
                          ::testing::UnitTest::GetInstance()->current_test_info()->name()};
  RecordingObserver observer_;
  std::unique_ptr<ScriptedJobRunner> runner_;
  std::unique_ptr<ScriptedJobMaterials> materials_;
  ScriptedCheckpointDisk checkpoint_disk_;
  std::unique_ptr<ScriptedJobCheckpoints> checkpoints_;
  std::unique_ptr<JobController> controller_;
};

TEST_F(JobControllerTest, AJobGoesThroughItsWholeLife) {
  Accept("a");
  Tick();
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_PREPARING);
  EXPECT_FALSE(controller_->Idle());
  materials_->Answer();
  Tick();
  EXPECT_EQ(runner_->running->model_path(), "/model");
  EXPECT_EQ(runner_->running->data_path(), "/data");
  runner_->EmitStarted(2);
  v1::StepRecord step;
  step.set_step(1);
  step.set_step_seconds(3);
  *step.mutable_end_time() = TimestampOf(clock_.WallNow());
  runner_->EmitStep(step);
  Tick();
  EXPECT_EQ(Get("a").planned_step_count(), 2);
  EXPECT_EQ(Get("a").plan().host_bytes(), ScriptedJobRunner::kEnginePlanBytes);
  EXPECT_EQ(Get("a").last_step().step(), 1);
  EXPECT_EQ(TimeOf(Get("a").estimated_end_time()), TimeOf(step.end_time()) + absl::Seconds(3));
  FinishRun("a");
  EXPECT_EQ(Get("a").phase(), "publishing");
  materials_->Answer();
  Tick();
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Get("a").output_version(), "models/a/versions/1");
  EXPECT_EQ(Get("a").peak_host_bytes(), 1000);
  EXPECT_TRUE(Get("a").has_end_time());
  EXPECT_TRUE(controller_->Idle());
  EXPECT_EQ(observer_.steps, 1);
  EXPECT_THAT(observer_.ended, ElementsAre(v1::JOB_STATE_SUCCEEDED));
  EXPECT_THAT(*log_.Read("a", 0, 10000), HasSubstr("SUCCEEDED"));
}

TEST_F(JobControllerTest, JobsRunOneAfterAnotherInOrder) {
  Accept("a");
  Accept("b");
  TickUntilRunning("a");
  EXPECT_EQ(Get("b").state(), v1::JOB_STATE_QUEUED);
  FinishRun("a");
  materials_->Answer();
  Tick();
  TickUntilRunning("b");
}

TEST_F(JobControllerTest, APreparationThatFailsEndsTheJobByItsMessage) {
  Accept("a");
  Tick();
  materials_->preparation = WithReason(absl::InvalidArgumentError("line 7 is no JSON"), "BAD_ROW");
  materials_->Answer();
  Tick();
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(Get("a").reason().code(), "BAD_ROW");
  EXPECT_EQ(Get("a").reason().message(), "line 7 is no JSON");
}

TEST_F(JobControllerTest, AnEngineThatDiesIsRetriedAndThenGivenUpAndTheNextJobRuns) {
  Accept("a", /*max_attempts=*/2);
  Accept("b");
  TickUntilRunning("a");
  runner_->Die("killed by signal 9");
  runner_->ready = false;
  Tick();
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(Get("a").attempt(), 2);
  EXPECT_EQ(Get("a").reason().code(), "ENGINE_DIED");
  EXPECT_FALSE(Get("a").has_last_step());
  Tick();
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_QUEUED) << "the engine is not back yet";
  runner_->ready = true;
  TickUntilRunning("a");
  runner_->Die("killed by signal 9");
  Tick();
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(Get("a").reason().message(), "killed by signal 9");
  TickUntilRunning("b");
}

TEST_F(JobControllerTest, AJobThatStalledItsEngineFailsAtOnceAndTheNextJobRuns) {
  Accept("a", /*max_attempts=*/5);
  Accept("b");
  TickUntilRunning("a");
  runner_->Die("compute is in layer_forward unit 3", "ENGINE_STALLED");
  Tick();
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(Get("a").reason().code(), "ENGINE_STALLED");
  EXPECT_EQ(Get("a").attempt(), 1);
  TickUntilRunning("b");
}

TEST_F(JobControllerTest, AJobIsCancelledWhereverItIs) {
  Accept("a");
  Accept("b");
  Accept("c");
  Cancel("b");
  TickUntilRunning("a");
  EXPECT_EQ(Get("b").state(), v1::JOB_STATE_CANCELLED);
  Cancel("a");
  Tick();
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_CANCELLING);
  EXPECT_TRUE(runner_->stop_asked);
  runner_->ReportStopped();
  Tick();
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(Get("a").reason().code(), "CANCELLED_BY_USER");
  Tick();
  EXPECT_EQ(Get("c").state(), v1::JOB_STATE_PREPARING);
  Cancel("c");
  Tick();
  EXPECT_EQ(Get("c").state(), v1::JOB_STATE_CANCELLED);
  materials_->Answer();
  Tick();
  EXPECT_FALSE(runner_->running.has_value());
  EXPECT_EQ(observer_.ended, std::vector<v1::JobState>(3, v1::JOB_STATE_CANCELLED));
}

TEST_F(JobControllerTest, AResultThatComesAfterTheWishIsDiscarded) {
  Accept("a");
  TickUntilRunning("a");
  Cancel("a");
  Tick();
  FinishRun("a");
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_CANCELLED);
  EXPECT_TRUE(disk_.output_folders.empty());
}

TEST_F(JobControllerTest, ADaemonThatDiedRetriesWhatRan) {
  Accept("a", /*max_attempts=*/2);
  Accept("b");
  TickUntilRunning("a");
  Restart();
  TickUntilRunning("a");
  EXPECT_EQ(Get("a").attempt(), 2);
  EXPECT_EQ(Get("a").reason().code(), "SERVER_DIED");
  Restart();
  Tick();
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(Get("b").state(), v1::JOB_STATE_PREPARING);
}

TEST_F(JobControllerTest, ATrainedJobIsPublishedAfterARestartAndNotTrainedAgain) {
  Accept("a");
  TickUntilRunning("a");
  FinishRun("a");
  Restart();
  Tick();
  EXPECT_FALSE(runner_->running.has_value());
  materials_->Answer();
  Tick();
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(disk_.versions.size(), 1u);
}

TEST_F(JobControllerTest, DrainPutsTheRunningJobBackWithoutAnAttemptMore) {
  Accept("a");
  TickUntilRunning("a");
  controller_->Drain();
  Tick();
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_PAUSING);
  EXPECT_EQ(runner_->save_asked->trigger, v1::CHECKPOINT_TRIGGER_DRAIN);
  EXPECT_TRUE(runner_->save_asked->then_stop);
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
  EXPECT_EQ(runner_->running->resume_checkpoint_path(), "/jobs/a/checkpoints/step-00000003");
}

TEST_F(JobControllerTest, DrainOfAJobThatHoldsStopsIt) {
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

TEST_F(JobControllerTest, AJobIsPausedWithItsStateAndGoesOnFromIt) {
  Accept("a");
  Accept("b");
  TickUntilRunning("a");
  Wish("a", JobWish::Kind::kPause);
  Tick();
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_PAUSING);
  EXPECT_EQ(runner_->save_asked->trigger, v1::CHECKPOINT_TRIGGER_PAUSE);
  EngineSaves("a", 3);
  runner_->Pause("step-00000003");
  Tick();
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_PAUSED);
  EXPECT_EQ(Get("a").last_checkpoint(), "jobs/a/checkpoints/step-00000003");
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
  EXPECT_EQ(runner_->running->resume_checkpoint_path(), "/jobs/a/checkpoints/step-00000003");
}

TEST_F(JobControllerTest, AJobThatWaitsOrIsPreparedIsHeld) {
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

TEST_F(JobControllerTest, APausedJobIsCancelled) {
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

TEST_F(JobControllerTest, AJobWhoseSaveFailsHoldsUntilItIsSaved) {
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
  EXPECT_EQ(runner_->save_asked->trigger, v1::CHECKPOINT_TRIGGER_MANUAL);
  EXPECT_FALSE(runner_->save_asked->then_stop);
  EngineSaves("a", 3);
  Tick();
  EXPECT_EQ(Get("a").phase(), "");
  EXPECT_FALSE(Get("a").has_reason());
  EXPECT_EQ(observer_.checkpoints, 1);
}

TEST_F(JobControllerTest, ASaveIsAskedForOnce) {
  Accept("a");
  TickUntilRunning("a");
  Wish("a", JobWish::Kind::kSave);
  Tick();
  EXPECT_EQ(runner_->save_asked->trigger, v1::CHECKPOINT_TRIGGER_MANUAL);
  runner_->save_asked.reset();
  Tick();
  EXPECT_FALSE(runner_->save_asked.has_value());
}

TEST_F(JobControllerTest, ADamagedCheckpointIsPassedOver) {
  Accept("a");
  TickUntilRunning("a");
  EngineSaves("a", 3);
  EngineSaves("a", 6);
  runner_->Die("killed by signal 9");
  Tick();
  TickUntilRunning("a");
  EXPECT_EQ(runner_->running->resume_checkpoint_path(), "/jobs/a/checkpoints/step-00000006");
  runner_->Fail("CHECKPOINT_CORRUPT", "adam_m.bin: bytes 0 to 7");
  Tick();
  EXPECT_EQ(Get("a").attempt(), 2) << "it is no crash";
  TickUntilRunning("a");
  EXPECT_EQ(runner_->running->resume_checkpoint_path(), "/jobs/a/checkpoints/step-00000003");
}

TEST_F(JobControllerTest, CrashesAreCountedFromTheNewestCheckpointOn) {
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

TEST_F(JobControllerTest, AJobWaitsForRoomForItsCheckpoint) {
  Accept("a");
  checkpoints_->room = WithReason(absl::ResourceExhaustedError("7 bytes"), "DISK_SPACE_EXCEEDED");
  Tick();
  Tick();
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(Get("a").reason().code(), "DISK_SPACE_EXCEEDED");
  checkpoints_->room = absl::OkStatus();
  TickUntilRunning("a");
}

TEST_F(JobControllerTest, AFailureOfTheEngineIsTheReason) {
  Accept("a");
  TickUntilRunning("a");
  runner_->Fail("NONFINITE_LOSS", "layer 3, row 7");
  Tick();
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(Get("a").reason().code(), "NONFINITE_LOSS");
}

TEST_F(JobControllerTest, AResultThatCannotBeStoredFailsTheJobAndLeavesNothing) {
  Accept("a");
  TickUntilRunning("a");
  FinishRun("a");
  materials_->publication = absl::ResourceExhaustedError("disk full");
  materials_->Answer();
  Tick();
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(Get("a").reason().code(), "OUTPUT_NOT_STORED");
  EXPECT_TRUE(disk_.output_folders.empty());
}

}  // namespace
}  // namespace megatrain
