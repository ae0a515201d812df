// Jobs that are trained and whose results cannot be stored at once.

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/errors/errors.h"
#include "server/jobs/job_controller_for_test.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

class JobResultTest : public JobControllerTest {
 protected:
  // Trained, and the disk of the models was full.
  void TrainUntilTheDiskIsFull() {
    Accept("a", /*max_attempts=*/1);
    TickUntilRunning("a");
    FinishRun("a");
    AnswerBy(WithReason(absl::ResourceExhaustedError("no space left"), "DISK_FULL"));
  }

  void AnswerBy(const absl::Status& publication) {
    materials_->publication = publication;
    materials_->Answer();
    Tick();
  }

  void ExpectThatItWaits() {
    EXPECT_EQ(Get("a").state(), v1::JOB_STATE_QUEUED);
    EXPECT_EQ(Get("a").phase(), "publishing");
    EXPECT_EQ(disk_.output_folders.size(), 1U) << "nothing is lost";
    EXPECT_FALSE(runner_->running.has_value()) << "nor trained again";
  }
};

TEST_F(JobResultTest, ItIsKeptAndTriedAgainLongerFromTimeToTime) {
  TrainUntilTheDiskIsFull();
  EXPECT_EQ(Get("a").reason().code(), "DISK_FULL");
  EXPECT_THAT(Get("a").reason().message(), HasSubstr("no space left"));
  for (const int seconds : {10, 20, 40}) {
    ExpectThatItWaits();
    EXPECT_THAT(Get("a").reason().message(), HasSubstr(absl::StrCat("in ", seconds, "s")));
    clock_.Advance(absl::Seconds(seconds - 2));
    Tick();
    EXPECT_FALSE(materials_->HasQuestions()) << seconds;
    Tick();
    ASSERT_TRUE(materials_->HasQuestions()) << seconds;
    AnswerBy(absl::UnknownError("cannot rename: Input/output error"));
    EXPECT_EQ(Get("a").reason().code(), "OUTPUT_NOT_STORED");
    EXPECT_THAT(Get("a").reason().message(), HasSubstr("Input/output error"));
  }
}

TEST_F(JobResultTest, AResumeTriesItAgainAtOnce) {
  TrainUntilTheDiskIsFull();
  Wish("a", JobWish::Kind::kResume);
  Tick();
  AnswerBy(absl::OkStatus());
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Get("a").output_version(), "models/a/versions/1");
  EXPECT_FALSE(Get("a").has_reason());
  EXPECT_TRUE(disk_.output_folders.empty());
}

TEST_F(JobResultTest, ItOutlivesTheServer) {
  TrainUntilTheDiskIsFull();
  Restart();
  Tick();
  AnswerBy(absl::UnavailableError("database is busy"));
  ExpectThatItWaits();
  Restart();
  Tick();
  AnswerBy(absl::OkStatus());
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Get("a").attempt(), 1);
}

TEST_F(JobResultTest, OthersRunMeanwhileAndItIsStoredBesideThem) {
  TrainUntilTheDiskIsFull();
  Accept("b");
  TickUntilRunning("b");
  clock_.Advance(absl::Seconds(10));
  Tick();
  AnswerBy(absl::OkStatus());
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Get("b").state(), v1::JOB_STATE_RUNNING);
}

TEST_F(JobResultTest, ItIsHeldAndCancelled) {
  TrainUntilTheDiskIsFull();
  Wish("a", JobWish::Kind::kPause);
  clock_.Advance(absl::Minutes(10));
  Tick();
  Tick();
  EXPECT_TRUE(Get("a").held());
  EXPECT_FALSE(materials_->HasQuestions());
  Cancel("a");
  Tick();
  AnswerBy(absl::ResourceExhaustedError("no space left"));
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_CANCELLED);
  EXPECT_TRUE(disk_.output_folders.empty());
}

TEST_F(JobResultTest, ItIsNoReasonToGoBackToACheckpoint) {
  TrainUntilTheDiskIsFull();
  const JobWish wish{.kind = JobWish::Kind::kResume,
                     .start_checkpoint = "jobs/a/checkpoints/step-00000003"};
  EXPECT_EQ(ReasonOf(store_.RecordWish({"Wish", "", ""}, "jobs/a", wish).status()), "JOB_TRAINED");
}

TEST_F(JobResultTest, OneThatIsGoneIsMadeAgainFromTheNewestCheckpoint) {
  Accept("a", /*max_attempts=*/2);
  TickUntilRunning("a");
  EngineSaves("a", 3);
  FinishRun("a");
  disk_.output_folders.clear();
  AnswerBy(absl::OkStatus());
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(Get("a").attempt(), 2);
  EXPECT_EQ(Get("a").reason().code(), "OUTPUT_NOT_STORED");
  TickUntilRunning("a");
  EXPECT_EQ(runner_->Running().resume_checkpoint_path(), "/jobs/a/checkpoints/step-00000003");
  FinishRun("a");
  disk_.output_folders.clear();
  AnswerBy(absl::OkStatus());
  EXPECT_EQ(Get("a").state(), v1::JOB_STATE_FAILED) << "twice from the same place";
  EXPECT_EQ(Get("a").last_checkpoint(), "jobs/a/checkpoints/step-00000003");
}

}  // namespace
}  // namespace megatrain
