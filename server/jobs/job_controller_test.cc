#include "server/jobs/job_controller.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/errors/errors.h"
#include "server/jobs/job_controller_for_test.h"
#include "server/resources/timestamp.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(JobControllerTest, AJobGoesThroughItsWholeLife) {
  Accept("a");
  Tick();
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_PREPARING);
  EXPECT_FALSE(controller_->Idle());
  materials_->Answer();
  Tick();
  EXPECT_EQ(runner_->Running().model_path(), "/model");
  EXPECT_EQ(runner_->Running().data_path(), "/data");
  runner_->EmitStarted(2);
  v1::StepRecord step;
  step.set_step(1);
  step.set_step_seconds(3);
  *step.mutable_end_time() = TimestampOf(clock_.WallNow());
  runner_->EmitStep(step);
  Tick();
  EXPECT_EQ(Get("a").planned_step_count(), 2);
  EXPECT_EQ(Get("a").plan().host_bytes(), ScriptedJobRunner::kEnginePlanBytes);
  EXPECT_EQ(Get("a").plan().checkpoint_bytes(), kPlannedCheckpointBytes);
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

TEST_F(JobControllerTest, APreparationThatTheDiskStoppedIsTriedAgain) {
  Accept("a", /*max_attempts=*/1);
  for (const absl::Status& status :
       {absl::ResourceExhaustedError("no space left"), absl::UnavailableError("database is busy"),
        absl::UnknownError("cannot read config.json: Input/output error")}) {
    Tick();
    materials_->preparation = status;
    materials_->Answer();
    Tick();
    EXPECT_EQ(Get("a").state(), v1::JOB_STATE_QUEUED) << status;
    EXPECT_EQ(Get("a").reason().code(), "PREPARATION_FAILED");
    EXPECT_THAT(Get("a").reason().message(), HasSubstr(std::string(status.message())));
    EXPECT_EQ(Get("a").attempt(), 1);
    clock_.Advance(absl::Minutes(10));
  }
  materials_->preparation = absl::OkStatus();
  TickUntilRunning("a");
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
  CancelWhileItRuns("a");
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

TEST_F(JobControllerTest, AFailureOfTheEngineIsTheReason) {
  Accept("a");
  TickUntilRunning("a");
  runner_->Fail("NONFINITE_LOSS", "layer 3, row 7");
  Tick();
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(Get("a").reason().code(), "NONFINITE_LOSS");
}

}  // namespace
}  // namespace megatrain
