// pause, resume, fork, show; what ps and watch tell of them.

#include <atomic>

#include "client/cli/app_for_test.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kCheckpoint[] = "jobs/a/checkpoints/step-00000002";

v1::Job HoldingJob() {
  v1::Job job = MakeJob(v1::JOB_STATE_RUNNING);
  job.set_phase("holding");
  job.mutable_last_step()->set_step(3);
  job.mutable_reason()->set_code("DISK_FULL");
  job.mutable_reason()->set_message("no space left on device");
  job.set_last_checkpoint(kCheckpoint);
  return job;
}

class AppLifecycleTest : public AppTest {
 protected:
  // PauseJob answers PAUSING; GetJob gives that once more, then `settled`.
  void PauseLeadsTo(const v1::Job& settled) {
    server_.jobs.pause = [](const v1::PauseJobRequest& request, v1::Job& job) {
      EXPECT_EQ(request.name(), "jobs/a");
      EXPECT_EQ(request.request_id().size(), 36u);
      job = MakeJob(v1::JOB_STATE_PAUSING);
      return grpc::Status::OK;
    };
    server_.jobs.get = [this, settled](const v1::GetJobRequest&, v1::Job& job) {
      job = get_count_++ == 0 ? MakeJob(v1::JOB_STATE_PAUSING) : settled;
      return grpc::Status::OK;
    };
    StartServer();
  }

  // ForkJob accepts; GetJob gives jobs/a, which trains for 3 epochs.
  void AcceptForks() {
    server_.jobs.fork = [this](const v1::ForkJobRequest& request, v1::Job& job) {
      forked_.push_back(request);
      job = MakeJob(v1::JOB_STATE_QUEUED);
      job.set_name("jobs/b");
      return grpc::Status::OK;
    };
    server_.jobs.get = [this](const v1::GetJobRequest& request, v1::Job& job) {
      EXPECT_EQ(request.name(), "jobs/a");
      job = MakeJob(state_);
      job.mutable_spec()->mutable_train()->set_epochs(3);
      job.mutable_spec()->mutable_train()->set_seed(7);
      job.mutable_spec()->set_output("models/a");
      job.set_last_checkpoint(last_checkpoint_);
      return grpc::Status::OK;
    };
    StartServer();
  }

  std::atomic<int> get_count_ = 0;
  std::string last_checkpoint_ = kCheckpoint;
  std::atomic<v1::JobState> state_ = v1::JOB_STATE_RUNNING;
  std::vector<v1::ForkJobRequest> forked_;
};

TEST_F(AppLifecycleTest, PauseTellsTheState) {
  PauseLeadsTo(MakeJob(v1::JOB_STATE_PAUSED));
  EXPECT_EQ(Run({"pause", "a"}), 0) << err();
  EXPECT_EQ(out(), "jobs/a PAUSING\n");
  EXPECT_EQ(get_count_, 0);
}

TEST_F(AppLifecycleTest, PauseWaitsUntilItIsSaved) {
  v1::Job paused = MakeJob(v1::JOB_STATE_PAUSED);
  paused.set_last_checkpoint(kCheckpoint);
  PauseLeadsTo(paused);
  EXPECT_EQ(Run({"pause", "a", "--wait"}), 0) << err();
  EXPECT_EQ(out(), "jobs/a PAUSED\n");
  EXPECT_THAT(err(), AllOf(HasSubstr("jobs/a is paused, saved as a/step-00000002:\n"),
                           HasSubstr("megatrain resume a ")));
}

TEST_F(AppLifecycleTest, APauseThatMeetsAFullDiskIsSeven) {
  PauseLeadsTo(HoldingJob());
  EXPECT_EQ(Run({"pause", "a", "--wait"}), 7);
  EXPECT_EQ(out(), "jobs/a RUNNING, holding\n");
  EXPECT_THAT(err(), AllOf(HasSubstr("jobs/a holds after step 3"), HasSubstr("free space")));
}

TEST_F(AppLifecycleTest, APauseOfAJobThatHoldsWaitsForTheNextTry) {
  server_.jobs.pause = [](const v1::PauseJobRequest&, v1::Job& job) {
    job = HoldingJob();
    job.mutable_update_time()->set_seconds(100);
    return grpc::Status::OK;
  };
  server_.jobs.get = [this](const v1::GetJobRequest&, v1::Job& job) {
    const bool holds = get_count_ == 0 || get_count_ == 2;
    job = holds ? HoldingJob() : MakeJob(v1::JOB_STATE_PAUSING);
    job.mutable_update_time()->set_seconds(get_count_ == 0 ? 100 : 101);
    ++get_count_;
    return grpc::Status::OK;
  };
  StartServer();
  EXPECT_EQ(Run({"pause", "a", "--wait"}), 7) << err();
  EXPECT_EQ(get_count_, 3) << "what it held before says nothing";
}

TEST_F(AppLifecycleTest, APauseThatComesTooLateHasTheJobsCode) {
  PauseLeadsTo(MakeJob(v1::JOB_STATE_FAILED));
  EXPECT_EQ(Run({"pause", "a", "--wait"}), 10);
  EXPECT_EQ(out(), "jobs/a FAILED\n");
}

TEST_F(AppLifecycleTest, ResumeFromACheckpoint) {
  std::vector<v1::ResumeJobRequest> requests;
  server_.jobs.resume = [&](const v1::ResumeJobRequest& request, v1::Job& job) {
    requests.push_back(request);
    job = MakeJob(v1::JOB_STATE_QUEUED);
    return grpc::Status::OK;
  };
  StartServer();
  EXPECT_EQ(Run({"resume", "a"}), 0) << err();
  EXPECT_EQ(out(), "jobs/a QUEUED\n");
  EXPECT_THAT(err(), HasSubstr("Next:\n  megatrain watch a\n"));
  EXPECT_EQ(requests[0].checkpoint(), "");
  EXPECT_EQ(requests[0].request_id().size(), 36u);
  for (const char* from : {"step-00000002", "a/step-00000002", kCheckpoint}) {
    EXPECT_EQ(Run({"resume", "a", "--from", from}), 0) << err();
    EXPECT_EQ(requests.back().checkpoint(), kCheckpoint) << from;
    EXPECT_THAT(err(), HasSubstr("checkpoints of later steps are removed when the next"));
  }
}

TEST_F(AppLifecycleTest, AnEndedJobGoesOnAsAFork) {
  server_.jobs.resume = [](const v1::ResumeJobRequest&, v1::Job&) {
    return ErrorWithReason(grpc::StatusCode::FAILED_PRECONDITION, "jobs/a has ended already",
                           "JOB_ENDED");
  };
  StartServer();
  EXPECT_EQ(Run({"resume", "a"}), 6);
  EXPECT_THAT(err(), AllOf(HasSubstr("jobs/a has ended already"),
                           HasSubstr("try: megatrain fork a\n"), HasSubstr("JOB_ENDED")));
}

TEST_F(AppLifecycleTest, ForkOfAJobTakesItsLastCheckpoint) {
  AcceptForks();
  EXPECT_EQ(Run({"fork", "a"}), 0) << err();
  ASSERT_EQ(forked_.size(), 1u);
  EXPECT_EQ(forked_[0].checkpoint(), kCheckpoint);
  EXPECT_EQ(forked_[0].mode(), v1::FORK_MODE_FULL_STATE);
  EXPECT_FALSE(forked_[0].has_spec()) << "all as it was";
  EXPECT_THAT(out(), HasSubstr("job:     jobs/b\n"));
  EXPECT_THAT(err(), HasSubstr("megatrain watch b\n"));
  last_checkpoint_.clear();
  EXPECT_EQ(Run({"fork", "a"}), 6);
  EXPECT_THAT(err(), AllOf(HasSubstr("jobs/a has no checkpoint to fork"),
                           HasSubstr("try: megatrain checkpoint create a")));
  state_ = v1::JOB_STATE_FAILED;
  EXPECT_EQ(Run({"fork", "a"}), 6);
  EXPECT_THAT(err(), HasSubstr("try: megatrain submit FILE\n")) << "it cannot be saved any more";
}

TEST_F(AppLifecycleTest, ForkLaysChangesOverWhatTheJobTrained) {
  AcceptForks();
  EXPECT_EQ(Run({"fork", "a/step-00000001", "--weights-only", "--name", "b", "--set",
                 "train.steps=5", "--set", "display_name=cooler", "-o", "name"}),
            0)
      << err();
  EXPECT_EQ(out(), "jobs/b\n");
  const v1::ForkJobRequest& request = forked_.at(0);
  EXPECT_EQ(request.checkpoint(), "jobs/a/checkpoints/step-00000001");
  EXPECT_EQ(request.mode(), v1::FORK_MODE_WEIGHTS);
  EXPECT_EQ(request.job_id(), "b");
  EXPECT_EQ(request.display_name(), "cooler");
  EXPECT_EQ(request.spec().model(), "models/m");
  EXPECT_EQ(request.spec().train().seed(), 7);
  EXPECT_EQ(request.spec().train().steps(), 5);
  EXPECT_EQ(request.spec().train().epochs(), 0) << "steps take the place of epochs";
  EXPECT_EQ(request.spec().output(), "") << "not over the first one's";
}

TEST_F(AppLifecycleTest, ForkTakesAJobFileWithChanges) {
  AcceptForks();
  const std::string changes = FileOf("changes.yaml", "dataset: datasets/other\n");
  EXPECT_EQ(Run({"fork", "a/step-00000001", changes, "--weights-only"}), 0) << err();
  EXPECT_EQ(forked_.at(0).spec().dataset(), "datasets/other");
  EXPECT_EQ(forked_.at(0).spec().model(), "models/m");
  const std::string wrong = FileOf("wrong.yaml", "trian: {seed: 1}\n");
  EXPECT_EQ(Run({"fork", "a/step-00000001", wrong}), 2);
  EXPECT_THAT(err(), HasSubstr("try: train, the nearest known key"));
}

TEST_F(AppLifecycleTest, AForkAfterALostAnswerIsTheSameRequest) {
  AcceptForks();
  std::atomic<bool> lost = true;
  server_.jobs.fork = [&](const v1::ForkJobRequest& request, v1::Job& job) {
    forked_.push_back(request);
    job = MakeJob(v1::JOB_STATE_QUEUED);
    return lost ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "link cut") : grpc::Status::OK;
  };
  EXPECT_EQ(Run({"fork", "a"}), 8);
  lost = false;
  EXPECT_EQ(Run({"fork", "a"}), 0);
  EXPECT_EQ(forked_.back().request_id(), forked_.front().request_id());
  EXPECT_EQ(Run({"fork", "a"}), 0);
  EXPECT_NE(forked_.back().request_id(), forked_.front().request_id());
}

TEST_F(AppLifecycleTest, ShowTellsFactsAndAdvice) {
  server_.jobs.get = [](const v1::GetJobRequest& request, v1::Job& job) {
    EXPECT_EQ(request.name(), "jobs/a");
    job = HoldingJob();
    job.set_resumed_from("jobs/a/checkpoints/step-00000001");
    return grpc::Status::OK;
  };
  StartServer();
  EXPECT_EQ(Run({"show", "a"}), 0) << err();
  EXPECT_THAT(out(), AllOf(HasSubstr("job:             jobs/a\n"),
                           HasSubstr("state:           RUNNING, holding: no space left"),
                           HasSubstr("resumed from:    a/step-00000001\n"),
                           HasSubstr("last checkpoint: a/step-00000002\n")));
  EXPECT_THAT(err(), HasSubstr("megatrain resume a "));
  EXPECT_EQ(Run({"show", "a", "-o", "json"}), 0);
  EXPECT_EQ(nlohmann::json::parse(out())["lastCheckpoint"], kCheckpoint);
  EXPECT_THAT(err(), IsEmpty());
}

TEST_F(AppLifecycleTest, PsShowsWhatIsSavedAndWhoHolds) {
  server_.jobs.list = [](const v1::ListJobsRequest&, v1::ListJobsResponse& response) {
    *response.add_jobs() = HoldingJob();
    *response.add_jobs() = MakeJob(v1::JOB_STATE_PAUSED);
    v1::Job& waiting = *response.add_jobs();
    waiting = MakeJob(v1::JOB_STATE_QUEUED);
    waiting.mutable_reason()->set_code("DISK_SPACE_EXCEEDED");
    return grpc::Status::OK;
  };
  StartServer();
  EXPECT_EQ(Run({"ps"}), 0);
  EXPECT_THAT(out(),
              AllOf(ContainsRegex("jobs/a  RUNNING, holding  +3/2"), HasSubstr("step-00000002"),
                    HasSubstr("jobs/a  PAUSED"), HasSubstr("jobs/a  QUEUED, DISK_SPACE_EXCEEDED")));
  EXPECT_THAT(err(), AllOf(HasSubstr("jobs/a holds after step 3"), Not(HasSubstr("is paused"))));
}

TEST_F(AppLifecycleTest, WatchTellsSavesEvaluationsAndAnEarlyStop) {
  server_.jobs.watch = [](grpc::ServerContext&, const v1::WatchJobRequest&, auto& writer) {
    writer.Write(SnapshotOf(v1::JOB_STATE_RUNNING));
    writer.Write(StepEvent(1, 4));
    v1::JobEvent evaluation;
    evaluation.set_sequence(2);
    evaluation.mutable_evaluation()->set_step(1);
    evaluation.mutable_evaluation()->set_loss(0.25);
    writer.Write(evaluation);
    v1::JobEvent saved;
    saved.set_sequence(3);
    saved.mutable_checkpoint()->set_name(kCheckpoint);
    writer.Write(saved);
    v1::JobEvent final = FinalOf(v1::JOB_STATE_SUCCEEDED);
    final.mutable_final()->set_stopped_early(true);
    *final.mutable_final()->mutable_best_evaluation() = evaluation.evaluation();
    final.mutable_final()->set_best_checkpoint(kCheckpoint);
    writer.Write(final);
    return grpc::Status::OK;
  };
  StartServer();
  EXPECT_EQ(Run({"watch", "a"}), 0);
  EXPECT_THAT(err(), AllOf(HasSubstr("validation loss 0.2500 after step 1, the best so far\n"),
                           HasSubstr("saved a/step-00000002, 0 B\n"),
                           HasSubstr("stopped early: best validation loss 0.2500 after step 1, "
                                     "saved as a/step-00000002\n")));
}

TEST_F(AppLifecycleTest, AFailedJobTellsWhatIsLeftOfIt) {
  server_.jobs.watch = [](grpc::ServerContext&, const v1::WatchJobRequest&, auto& writer) {
    v1::JobEvent final = FinalOf(v1::JOB_STATE_FAILED);
    final.mutable_final()->set_last_checkpoint(kCheckpoint);
    writer.Write(final);
    return grpc::Status::OK;
  };
  StartServer();
  EXPECT_EQ(Run({"watch", "a"}), 10);
  EXPECT_THAT(err(), AllOf(HasSubstr("reason: ENGINE_DIED\njobs/a is saved as a/step-00000002:\n"),
                           HasSubstr("  megatrain fork a/step-00000002 ")));
}

}  // namespace
}  // namespace megatrain
