// A controller over scripted parts, for its tests.

#ifndef SERVER_JOBS_JOB_CONTROLLER_FOR_TEST_H_
#define SERVER_JOBS_JOB_CONTROLLER_FOR_TEST_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "runtime/base/posix_file_system.h"
#include "runtime/base/virtual_clock.h"
#include "server/jobs/job_controller.h"
#include "server/jobs/memory_job_store.h"
#include "server/jobs/scripted_job_checkpoints.h"
#include "server/jobs/scripted_job_materials.h"
#include "server/jobs/scripted_job_runner.h"

namespace megatrain {

class RecordingObserver final : public JobObserver {
 public:
  void OnChange(const v1::Job&) override { ++changes; }
  void OnLog(const v1::Job&) override {}
  void OnStep(const v1::Job&, const v1::StepRecord&) override { ++steps; }
  void OnCheckpoint(const v1::Job&, const engine::v1::CheckpointSaved&) override { ++checkpoints; }
  void OnCheckpointFailure(const v1::Job&, const v1::CheckpointFailure&) override {}
  void OnEvaluation(const v1::Job&, const v1::EvaluationRecord&) override {}
  void OnDrained(const v1::Job&) override { ++drained; }
  void OnPreempted(const v1::Job&) override { ++preempted; }
  void OnRecovered(const v1::Job&) override {}
  void OnEnd(const v1::Job& job) override { ended.push_back(job.state()); }
  void OnFigures(const engine::v1::StreamFigures&) override {}
  void OnActiveJobs(const std::vector<JobRecord>&) override {}

  int changes = 0;
  int steps = 0;
  int checkpoints = 0;
  int drained = 0;
  int preempted = 0;
  std::vector<v1::JobState> ended;
};

class JobControllerTest : public ::testing::Test {
 protected:
  static constexpr int64_t kPlannedCheckpointBytes = 1000;

  void SetUp() override { Restart(); }

  // A new daemon over the same store and disk; the engine died with the old one.
  void Restart() {
    controller_.reset();
    runner_ = std::make_unique<ScriptedJobRunner>();
    materials_ = std::make_unique<ScriptedJobMaterials>(disk_);
    checkpoints_ = std::make_unique<ScriptedJobCheckpoints>(
        checkpoint_disk_, [this] { return recording_checkpoints_; });
    checkpoints_->Reconcile();
    controller_ = std::make_unique<JobController>(
        JobController::Parts{store_, *runner_, *materials_, *checkpoints_, log_, observer_}, [] {});
  }

  void Accept(const std::string& id, int max_attempts = 2, int priority = 0) {
    v1::Job job;
    job.mutable_spec()->set_priority(priority);
    job.set_name("jobs/" + id);
    job.set_state(v1::JOB_STATE_QUEUED);
    job.set_attempt(1);
    job.mutable_plan()->set_checkpoint_bytes(kPlannedCheckpointBytes);
    job.mutable_spec()->set_output("models/" + id);
    job.mutable_spec()->mutable_retry()->set_max_attempts(max_attempts);
    ASSERT_TRUE(store_.Create({"CreateJob", "", ""}, job).ok());
  }

  // Its user cancels it while the engine works on it.
  void CancelWhileItRuns(const std::string& id) {
    Cancel(id);
    Tick();
    EXPECT_EQ(Get(id).state(), v1::JOB_STATE_CANCELLING);
    EXPECT_TRUE(runner_->stop_asked);
    runner_->ReportStopped();
    Tick();
    EXPECT_EQ(Get(id).state(), v1::JOB_STATE_CANCELLED);
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
    EXPECT_EQ(runner_->Running().name(), "jobs/" + id);
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
  absl::Status recording_checkpoints_;
  std::unique_ptr<ScriptedJobCheckpoints> checkpoints_;
  std::unique_ptr<JobController> controller_;
};

}  // namespace megatrain

#endif  // SERVER_JOBS_JOB_CONTROLLER_FOR_TEST_H_
