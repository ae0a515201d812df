#include "client/cli/progress_view.h"

#include "client/cli/text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Not;
using ::testing::StartsWith;

v1::Job RunningJob(int64_t planned) {
  v1::Job job;
  job.set_state(v1::JOB_STATE_RUNNING);
  job.set_attempt(1);
  job.set_planned_step_count(planned);
  return job;
}

v1::StepRecord Step(int64_t number, double loss) {
  v1::StepRecord step;
  step.set_step(number);
  step.set_loss(loss);
  step.set_token_count(500);
  step.set_step_seconds(0.5);
  return step;
}

v1::StateChange Change(v1::JobState state, int attempt, const std::string& reason = "") {
  v1::StateChange change;
  change.set_state(state);
  change.set_attempt(attempt);
  change.mutable_reason()->set_message(reason);
  return change;
}

TEST(ProgressViewTest, TellsTheQueue) {
  ProgressView view;
  v1::Job job;
  job.set_state(v1::JOB_STATE_QUEUED);
  job.set_queue_position(2);
  view.SetJob(job);
  EXPECT_EQ(view.Words(), "QUEUED, 2 before it");
  EXPECT_EQ(view.Bar(80, true), "QUEUED, 2 before it");
}

TEST(ProgressViewTest, TellsStepLossSpeedAndTimeLeft) {
  ProgressView view;
  view.SetJob(RunningJob(120));
  for (int i = 1; i <= 30; ++i) {
    view.AddStep(Step(i, 4.0 / i));
  }
  v1::StepRecord remembered = Step(30, 4.0 / 30);  // by a checkpoint, which knows no times
  remembered.set_step_seconds(0);
  view.AddStep(remembered);
  EXPECT_EQ(view.Words(), "step 30/120, loss 0.1333, 1000 tokens/s, 45 s left");
}

TEST(ProgressViewTest, TheBarHasASparklineWhereThereIsRoom) {
  ProgressView view;
  view.SetJob(RunningJob(4));
  view.AddStep(Step(1, 4));
  view.AddStep(Step(2, 1));
  EXPECT_EQ(view.Bar(100, true),
            "[██████████░░░░░░░░░░] step 2/4, loss 1.0000, 1000 tokens/s, 1.0 s left  █▁");
  EXPECT_EQ(view.Bar(100, false),
            "[##########..........] step 2/4, loss 1.0000, 1000 tokens/s, 1.0 s left");
}

TEST(ProgressViewTest, TheBarKeepsToTheWidth) {
  ProgressView view;
  view.SetJob(RunningJob(1000));
  for (int i = 1; i <= 100; ++i) {
    view.AddStep(Step(i, i % 7));
    for (const int width : {60, 80, 100, 200}) {
      EXPECT_THAT(ColumnsOf(view.Bar(width, true)), Le(width));
    }
  }
  EXPECT_THAT(view.Bar(30, true), StartsWith("step 100/1000")) << "no bar before no words";
}

TEST(ProgressViewTest, ASecondAttemptBeginsAnew) {
  ProgressView view;
  view.SetJob(RunningJob(10));
  view.AddStep(Step(7, 1));
  view.ChangeState(Change(v1::JOB_STATE_QUEUED, 2, "the engine died: signal 9"));
  EXPECT_EQ(view.Words(), "QUEUED, attempt 2: the engine died: signal 9");
  view.ChangeState(Change(v1::JOB_STATE_RUNNING, 2));
  EXPECT_EQ(view.Words(), "RUNNING, attempt 2");
  view.AddStep(Step(1, 3));
  EXPECT_THAT(view.Words(), StartsWith("step 1/10, loss 3.0000"));
}

TEST(ProgressViewTest, ASkippedStepShowsNoLoss) {
  ProgressView view;
  view.SetJob(RunningJob(10));
  v1::StepRecord step = Step(3, 0);
  step.set_skipped(true);
  view.AddStep(step);
  EXPECT_THAT(view.Words(), HasSubstr("skipped"));
  EXPECT_THAT(view.Words(), Not(HasSubstr("loss")));
}

TEST(ProgressViewTest, KnowsThatItLacksTheStepCount) {
  ProgressView view;
  view.SetJob(RunningJob(0));
  EXPECT_FALSE(view.lacks_step_count());
  view.AddStep(Step(1, 1));
  EXPECT_TRUE(view.lacks_step_count());
  view.SetJob(RunningJob(5));
  EXPECT_FALSE(view.lacks_step_count());
  EXPECT_THAT(view.Words(), StartsWith("step 1/5"));
}

TEST(ProgressViewTest, TellsTheLastEvaluation) {
  ProgressView view;
  view.SetJob(RunningJob(10));
  view.AddStep(Step(4, 1));
  v1::EvaluationRecord evaluation;
  evaluation.set_step(4);
  evaluation.set_loss(1.5);
  view.AddEvaluation(evaluation);
  EXPECT_THAT(view.Words(), StartsWith("step 4/10, loss 1.0000, validation 1.5000, 1000 tokens/s"));
  view.SetJob(RunningJob(10));  // a snapshot without one, of before
  EXPECT_THAT(view.Words(), HasSubstr("validation 1.5000"));
}

TEST(ProgressViewTest, TellsWhatKeepsItFromTraining) {
  ProgressView view;
  view.SetJob(RunningJob(10));
  view.AddStep(Step(4, 1));
  v1::StateChange change = Change(v1::JOB_STATE_RUNNING, 1, "no space left on device");
  change.set_phase("holding");
  view.ChangeState(change);
  EXPECT_EQ(view.Words(), "step 4/10, loss 1.0000, holding");
  change.set_phase("training");
  view.ChangeState(change);
  EXPECT_THAT(view.Words(), HasSubstr("tokens/s"));
}

TEST(ProgressViewTest, AReasonCannotSteerTheTerminal) {
  ProgressView view;
  view.SetJob(RunningJob(1));
  view.ChangeState(Change(v1::JOB_STATE_FAILED, 1, "bad \x1b[2J row"));
  EXPECT_EQ(view.Words(), "FAILED: bad ?[2J row");
}

}  // namespace
}  // namespace megatrain
