#include "client/cli/job_news.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace megatrain {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kSeen = 1000;  // seconds: when the job was first seen

class JobNewsTest : public ::testing::Test {
 protected:
  // The first snapshot of a running job.
  std::vector<std::string> See(v1::JobState state = v1::JOB_STATE_RUNNING) {
    v1::JobEvent event;
    v1::Job& job = *event.mutable_snapshot();
    job.set_name("jobs/a");
    job.set_state(state);
    job.mutable_update_time()->set_seconds(kSeen);
    job.mutable_last_step()->set_step(7);
    job.set_last_checkpoint("jobs/a/checkpoints/step-00000005");
    return news_.Of(event);
  }

  static v1::JobEvent At(int64_t seconds) {
    v1::JobEvent event;
    event.mutable_event_time()->set_seconds(seconds);
    return event;
  }

  static v1::JobEvent Evaluation(int64_t step, double loss, int64_t seconds = kSeen) {
    v1::JobEvent event = At(seconds);
    event.mutable_evaluation()->set_step(step);
    event.mutable_evaluation()->set_loss(loss);
    return event;
  }

  static v1::JobEvent Step(int64_t step) {
    v1::JobEvent event = At(kSeen);
    event.mutable_step()->set_step(step);
    return event;
  }

  static v1::JobEvent Change(v1::JobState state, const std::string& phase = "") {
    v1::JobEvent event = At(kSeen);
    event.mutable_state_change()->set_state(state);
    event.mutable_state_change()->set_phase(phase);
    return event;
  }

  static v1::JobEvent Checkpoint(int64_t seconds = kSeen) {
    v1::JobEvent event = At(seconds);
    event.mutable_checkpoint()->set_name("jobs/a/checkpoints/step-00000010");
    event.mutable_checkpoint()->set_size_bytes(1536);
    return event;
  }

  static v1::JobEvent Failure() {
    v1::JobEvent event = At(kSeen);
    event.mutable_checkpoint_failure()->mutable_reason()->set_message("disk full");
    return event;
  }

  JobNews news_{[](const std::string& verb) { return "megatrain " + verb; }};
};

TEST_F(JobNewsTest, CheckpointsAndEvaluations) {
  EXPECT_THAT(See(), IsEmpty());
  EXPECT_THAT(news_.Of(Checkpoint()), ElementsAre("saved a/step-00000010, 1.50 KiB"));
  EXPECT_THAT(news_.Of(Evaluation(10, 0.5)),
              ElementsAre("validation loss 0.5000 after step 10, the best so far"));
  EXPECT_THAT(news_.Of(Evaluation(20, 0.75)),
              ElementsAre("validation loss 0.7500 after step 20, best 0.5000 after step 10"));
  EXPECT_THAT(news_.Of(Step(21)), IsEmpty());
}

TEST_F(JobNewsTest, WhatHappenedBeforeTheJobWasSeenIsNoNews) {
  See();
  EXPECT_THAT(news_.Of(Checkpoint(kSeen - 1)), IsEmpty());
  EXPECT_THAT(news_.Of(Evaluation(10, 0.5, kSeen - 1)), IsEmpty());
  EXPECT_THAT(news_.Of(Evaluation(20, 0.75)), Contains(HasSubstr("best 0.5000 after step 10")))
      << "but it counts";
}

TEST_F(JobNewsTest, APauseTellsWhereItIsSavedAndHowItGoesOn) {
  See();
  EXPECT_THAT(news_.Of(Change(v1::JOB_STATE_PAUSING, "saving")), IsEmpty());
  news_.Of(Checkpoint());
  EXPECT_THAT(
      news_.Of(Change(v1::JOB_STATE_PAUSED)),
      ElementsAre("jobs/a is paused, saved as a/step-00000010:", HasSubstr("megatrain resume a")));
  EXPECT_THAT(news_.Of(Change(v1::JOB_STATE_QUEUED)), IsEmpty());
  EXPECT_THAT(news_.Of(Change(v1::JOB_STATE_RUNNING, "training")), IsEmpty());
  EXPECT_THAT(news_.Of(Step(11)), ElementsAre("goes on after step 10"));
  EXPECT_THAT(news_.Of(Step(12)), IsEmpty());
}

TEST_F(JobNewsTest, AnAttemptFromTheStartDoesNotGoOn) {
  See();
  news_.Of(Change(v1::JOB_STATE_QUEUED));
  EXPECT_THAT(news_.Of(Step(1)), IsEmpty());
}

TEST_F(JobNewsTest, AJobThatHoldsIsToldOnceForEachFailure) {
  See();
  news_.Of(Step(8));
  EXPECT_THAT(news_.Of(Failure()), Contains(HasSubstr("holds after step 8")));
  EXPECT_THAT(news_.Of(Change(v1::JOB_STATE_RUNNING, "holding")), IsEmpty()) << "known";
  EXPECT_THAT(news_.Of(Failure()), Contains(HasSubstr("disk full"))) << "the next try failed too";
  EXPECT_THAT(news_.Of(Change(v1::JOB_STATE_RUNNING, "training")), IsEmpty());
  EXPECT_THAT(news_.Of(Change(v1::JOB_STATE_RUNNING, "holding")), Contains(HasSubstr("holds")));
}

TEST_F(JobNewsTest, WhoComesLateIsToldToo) {
  EXPECT_THAT(See(v1::JOB_STATE_PAUSED), Contains(HasSubstr("is paused")));
  EXPECT_THAT(See(v1::JOB_STATE_PAUSED), IsEmpty()) << "a new stream of the same follow";
}

TEST_F(JobNewsTest, TheEndIsToldElsewhere) {
  EXPECT_THAT(See(v1::JOB_STATE_FAILED), IsEmpty());
  EXPECT_THAT(news_.Of(Change(v1::JOB_STATE_CANCELLED)), IsEmpty());
}

}  // namespace
}  // namespace megatrain
