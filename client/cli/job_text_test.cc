#include "client/cli/job_text.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace megatrain {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;

std::string Type(const std::string& verb) { return "megatrain " + verb; }

v1::Job JobIn(v1::JobState state, const std::string& phase = "") {
  v1::Job job;
  job.set_name("jobs/a");
  job.set_state(state);
  job.set_phase(phase);
  return job;
}

v1::Job HoldingJob() {
  v1::Job job = JobIn(v1::JOB_STATE_RUNNING, "holding");
  job.mutable_last_step()->set_step(120);
  job.set_last_checkpoint("jobs/a/checkpoints/step-00000100");
  job.mutable_reason()->set_code("DISK_FULL");
  job.mutable_reason()->set_message("cannot write /state/x: no space left on device");
  return job;
}

TEST(JobTextTest, StatesInWords) {
  EXPECT_EQ(StateWords(JobIn(v1::JOB_STATE_RUNNING, "training")), "RUNNING");
  EXPECT_EQ(StateWords(JobIn(v1::JOB_STATE_RUNNING, "saving")), "RUNNING, saving");
  EXPECT_EQ(StateWords(JobIn(v1::JOB_STATE_CANCELLED, "saving")), "CANCELLED");
  v1::Job held = JobIn(v1::JOB_STATE_QUEUED);
  held.set_held(true);
  EXPECT_EQ(StateWords(held), "QUEUED, held");
  v1::Job stopped = JobIn(v1::JOB_STATE_SUCCEEDED);
  stopped.set_stopped_early(true);
  EXPECT_EQ(StateWords(stopped), "SUCCEEDED, stopped early");
}

TEST(JobTextTest, AFullDiskTellsWhatToDo) {
  EXPECT_THAT(
      Advice(HoldingJob(), Type),
      ElementsAre("jobs/a holds after step 120, which cannot be saved: cannot write /state/x: no "
                  "space left on device",
                  "its state is in the server's memory; free space on its disk, then:",
                  "  megatrain resume a                saves it and goes on",
                  "  megatrain pause a                 saves it and stops",
                  "  megatrain cancel a                gives up what came after a/step-00000100"));
  v1::Job other = HoldingJob();
  other.mutable_reason()->set_code("DISK_FAILED");
  other.clear_last_checkpoint();
  EXPECT_THAT(Advice(other, Type), Contains(HasSubstr("mend its disk")));
  EXPECT_THAT(Advice(other, Type), Contains(HasSubstr("gives up all of its steps")));
}

TEST(JobTextTest, WhatStandsStillTellsHowItGoesOn) {
  v1::Job job = JobIn(v1::JOB_STATE_PAUSED);
  job.set_last_checkpoint("jobs/a/checkpoints/step-00000100");
  EXPECT_THAT(Advice(job, Type), ElementsAre("jobs/a is paused, saved as a/step-00000100:",
                                             "  megatrain resume a                goes on"));
  job.set_state(v1::JOB_STATE_FAILED);
  EXPECT_THAT(Advice(job, Type), Contains(HasSubstr("megatrain fork a/step-00000100")));
  job.clear_last_checkpoint();
  EXPECT_THAT(Advice(job, Type), IsEmpty()) << "nothing is left of it";
  v1::Job held = JobIn(v1::JOB_STATE_QUEUED);
  held.set_held(true);
  EXPECT_THAT(Advice(held, Type), Contains(HasSubstr("megatrain resume a")));
  v1::Job trained = JobIn(v1::JOB_STATE_QUEUED, "publishing");
  trained.mutable_reason()->set_message("its result cannot be stored yet");
  EXPECT_THAT(Advice(trained, Type),
              ElementsAre("jobs/a waits: its result cannot be stored yet",
                          "  megatrain resume a                tries again now"));
}

TEST(JobTextTest, WhatGoesOnByItselfNeedsNoAdvice) {
  for (const v1::JobState state : {v1::JOB_STATE_QUEUED, v1::JOB_STATE_RUNNING,
                                   v1::JOB_STATE_PAUSING, v1::JOB_STATE_SUCCEEDED}) {
    v1::Job job = JobIn(state, "training");
    job.set_last_checkpoint("jobs/a/checkpoints/step-00000100");
    EXPECT_THAT(Advice(job, Type), IsEmpty()) << StateWords(job);
  }
}

TEST(JobTextTest, FactsTellOriginCheckpointsAndEvaluations) {
  v1::Job job = HoldingJob();
  job.set_planned_step_count(500);
  job.mutable_last_step()->set_loss(0.5);
  job.set_resumed_from("jobs/a/checkpoints/step-00000060");
  job.set_forked_from("jobs/b/checkpoints/step-00000010");
  job.set_fork_mode(v1::FORK_MODE_WEIGHTS);
  job.mutable_last_evaluation()->set_step(100);
  job.mutable_last_evaluation()->set_loss(0.75);
  job.mutable_best_evaluation()->set_step(80);
  job.mutable_best_evaluation()->set_loss(0.25);
  job.set_best_checkpoint("jobs/a/checkpoints/step-00000080");
  job.set_attempt(2);
  const auto facts = JobFacts(job, absl::FromUnixSeconds(100));
  EXPECT_THAT(facts, Contains(Pair("step", "120 of 500")));
  EXPECT_THAT(facts, Contains(Pair("validation loss", "0.7500 after step 100")));
  EXPECT_THAT(facts, Contains(Pair("best", "0.2500 after step 80, a/step-00000080")));
  EXPECT_THAT(facts, Contains(Pair("last checkpoint", "a/step-00000100")));
  EXPECT_THAT(facts, Contains(Pair("resumed from", "a/step-00000060")));
  EXPECT_THAT(facts, Contains(Pair("forked from", "b/step-00000010, weights only")));
  EXPECT_THAT(facts, Contains(Pair("attempt", "2")));
  const auto of_new = JobFacts(JobIn(v1::JOB_STATE_QUEUED), absl::FromUnixSeconds(100));
  EXPECT_THAT(of_new, Not(Contains(Pair("best", HasSubstr("")))));
  EXPECT_THAT(of_new, Not(Contains(Pair("step", HasSubstr("")))));
}

}  // namespace
}  // namespace megatrain
