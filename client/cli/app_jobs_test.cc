// The verbs of jobs, from the command line to a scripted server.

#include <atomic>
#include <csignal>
#include <sstream>
#include <thread>

#include "client/cli/app_for_test.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

using AppJobsTest = AppTest;

TEST_F(AppJobsTest, SubmitTellsNamePositionPlanAndNext) {
  AcceptJobs(v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Run({"submit", job_file_, "--set", "train.steps=7"}), 0) << err();
  ASSERT_EQ(created_.size(), 1u);
  EXPECT_EQ(created_[0].spec().train().steps(), 7);
  EXPECT_EQ(created_[0].request_id().size(), 36u);
  EXPECT_THAT(out(), AllOf(HasSubstr("job:     jobs/a\nqueue:   next\nwork:    "),
                           HasSubstr("verdict: it fits\n"), Not(HasSubstr("Next:"))));
  EXPECT_THAT(err(), AllOf(HasSubstr("Next:\n"), HasSubstr("megatrain watch a\n"),
                           HasSubstr("megatrain logs -f a\n"), HasSubstr("megatrain cancel a\n")));
}

TEST_F(AppJobsTest, EachSubmitIsANewRequestOnceItIsAnswered) {
  AcceptJobs(v1::JOB_STATE_SUCCEEDED);
  ASSERT_EQ(Run({"submit", job_file_, "-o", "name"}), 0);
  EXPECT_EQ(out(), "jobs/a\n");
  ASSERT_EQ(Run({"submit", job_file_}), 0);
  EXPECT_NE(created_[0].request_id(), created_[1].request_id());
}

TEST_F(AppJobsTest, ARepeatAfterALostAnswerIsTheSameRequest) {
  std::atomic<bool> lost = true;
  server_.jobs.create = [&](const v1::CreateJobRequest& request, v1::Job& job) {
    created_.push_back(request);
    job = MakeJob(v1::JOB_STATE_QUEUED);
    return lost ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "link cut") : grpc::Status::OK;
  };
  StartServer();
  EXPECT_EQ(Run({"submit", job_file_}), 8);
  lost = false;
  EXPECT_EQ(Run({"submit", job_file_}), 0);
  for (const v1::CreateJobRequest& request : created_) {
    EXPECT_EQ(request.request_id(), created_[0].request_id());
  }
}

TEST_F(AppJobsTest, DryRunMakesNothing) {
  AcceptJobs(v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Run({"submit", job_file_, "--dry-run"}), 0);
  EXPECT_TRUE(created_[0].validate_only());
  EXPECT_THAT(out(), AllOf(HasSubstr("verdict: it fits"), Not(HasSubstr("jobs/a"))));
  EXPECT_THAT(err(), Not(HasSubstr("Next:")));
}

TEST_F(AppJobsTest, AJobThatDoesNotFitIsSix) {
  server_.jobs.create = [](const v1::CreateJobRequest&, v1::Job&) {
    return ErrorWithReason(grpc::StatusCode::FAILED_PRECONDITION,
                           "job does not fit: needs 1.61 TiB of host memory, 1.36 TiB can be used",
                           "HOST_MEMORY_EXCEEDED");
  };
  StartServer();
  EXPECT_EQ(Run({"submit", job_file_}), 6);
  EXPECT_THAT(err(), AllOf(StartsWith("error: job does not fit: needs 1.61 TiB"),
                           HasSubstr("reason: HOST_MEMORY_EXCEEDED\n")));
  EXPECT_THAT(out(), IsEmpty());
}

TEST_F(AppJobsTest, FollowExitsWithTheJobsEnd) {
  AcceptJobs(v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Run({"submit", job_file_, "--follow"}), 0);
  EXPECT_THAT(err(), AllOf(HasSubstr("step 1/2, loss 4.0000"),
                           HasSubstr("jobs/a SUCCEEDED: models/out/versions/1 after 2 steps")));
  EXPECT_THAT(out(), HasSubstr("job:     jobs/a"));
}

TEST_F(AppJobsTest, AFailedJobIsTenWithItsReason) {
  AcceptJobs(v1::JOB_STATE_FAILED);
  EXPECT_EQ(Run({"submit", job_file_, "--wait"}), 10);
  EXPECT_THAT(err(), AllOf(HasSubstr("error: jobs/a FAILED: the engine died: signal 9\n"),
                           HasSubstr("try: megatrain logs a\n"), HasSubstr("ENGINE_DIED"),
                           Not(HasSubstr("step 1"))));
}

TEST_F(AppJobsTest, ACancelledJobIsEleven) {
  AcceptJobs(v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(Run({"watch", "a"}), 11);
}

TEST_F(AppJobsTest, WatchAsJsonGivesALineAnEvent) {
  AcceptJobs(v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Run({"watch", "jobs/a", "-o", "json"}), 0);
  std::istringstream lines(out());
  std::vector<nlohmann::json> events;
  for (std::string line; std::getline(lines, line);) {
    events.push_back(nlohmann::json::parse(line));
  }
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[1]["step"]["loss"], 4.0);
  EXPECT_EQ(events[3]["final"]["state"], "JOB_STATE_SUCCEEDED");
}

TEST_F(AppJobsTest, SubmitFollowAsJsonGivesTheFinalJobOnly) {
  AcceptJobs(v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Run({"submit", job_file_, "--follow", "-o", "json"}), 0);
  EXPECT_EQ(nlohmann::json::parse(out())["outputVersion"], "models/out/versions/1");
}

TEST_F(AppJobsTest, ControlCDetachesAndTheJobGoesOn) {
  AcceptJobs(v1::JOB_STATE_SUCCEEDED);
  std::atomic<bool> watched = false;
  server_.jobs.watch = [&](grpc::ServerContext& context, const v1::WatchJobRequest&, auto& writer) {
    writer.Write(SnapshotOf(v1::JOB_STATE_RUNNING));
    watched = true;
    while (!context.IsCancelled()) {
      std::this_thread::yield();
    }
    return grpc::Status::OK;
  };
  server_.jobs.cancel = [](const v1::CancelJobRequest&, v1::Job&) {
    ADD_FAILURE() << "Ctrl-C must not cancel";
    return grpc::Status::OK;
  };
  std::thread person([&] {
    while (!watched) {
      std::this_thread::yield();
    }
    kill(getpid(), SIGINT);  // the real signal, through the real handler
  });
  EXPECT_EQ(Run({"submit", job_file_, "--follow"}), 130);
  person.join();
  server_.Stop();
  EXPECT_THAT(err(), AllOf(HasSubstr("detached: jobs/a goes on"), HasSubstr("megatrain watch a"),
                           HasSubstr("megatrain cancel a")));
}

TEST_F(AppJobsTest, OnATerminalTheBarIsRedrawnAndRemoved) {
  environment_.err_is_terminal = true;
  environment_.unicode = true;
  AcceptJobs(v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Run({"watch", "a"}), 0);
  EXPECT_THAT(err(), AllOf(HasSubstr("\r\x1b[K"), HasSubstr("\r\x1b[Kjobs/a SUCCEEDED")));
}

TEST_F(AppJobsTest, PsGoesThroughAllPages) {
  std::vector<v1::ListJobsRequest> requests;
  server_.jobs.list = [&](const v1::ListJobsRequest& request, v1::ListJobsResponse& response) {
    requests.push_back(request);
    *response.add_jobs() = MakeJob(v1::JOB_STATE_RUNNING);
    if (request.page_token().empty()) {
      response.set_next_page_token("more");
    }
    return grpc::Status::OK;
  };
  StartServer();
  EXPECT_EQ(Run({"ps", "-o", "name"}), 0);
  EXPECT_EQ(out(), "jobs/a\njobs/a\n");
  EXPECT_EQ(requests[1].page_token(), "more");
  EXPECT_EQ(requests[0].states_size(), 6) << "those that are not final";
  EXPECT_EQ(Run({"ps", "-a"}), 0);
  EXPECT_THAT(out(), AllOf(StartsWith("JOB     STATE"), HasSubstr("jobs/a  RUNNING")));
  EXPECT_EQ(requests.back().states_size(), 0);
  EXPECT_EQ(Run({"ps", "--no-headers"}), 0);
  EXPECT_THAT(out(), StartsWith("jobs/a"));
}

TEST_F(AppJobsTest, LogsPrintsWhatThereIs) {
  server_.jobs.logs = [](grpc::ServerContext&, const v1::StreamLogsRequest& request,
                         auto& writer) -> grpc::Status {
    if (request.name() != "jobs/a") {
      return ErrorWithReason(grpc::StatusCode::NOT_FOUND, "no such job", "RESOURCE_NOT_FOUND");
    }
    v1::LogChunk chunk;
    chunk.set_data("one\ntwo\n");
    chunk.set_end(request.follow());
    writer.Write(chunk);
    return grpc::Status::OK;
  };
  server_.jobs.get = [](const v1::GetJobRequest&, v1::Job& job) {
    job = MakeJob(v1::JOB_STATE_FAILED);
    return grpc::Status::OK;
  };
  StartServer();
  EXPECT_EQ(Run({"logs", "a"}), 0);
  EXPECT_EQ(out(), "one\ntwo\n");
  EXPECT_EQ(Run({"logs", "-f", "a"}), 10);
  EXPECT_EQ(out(), "one\ntwo\n");
  EXPECT_EQ(Run({"logs", "b"}), 3);
}

TEST_F(AppJobsTest, CancelTellsTheState) {
  server_.jobs.cancel = [](const v1::CancelJobRequest& request, v1::Job& job) {
    EXPECT_EQ(request.name(), "jobs/a");
    EXPECT_FALSE(request.request_id().empty());
    job = MakeJob(v1::JOB_STATE_CANCELLING);
    return grpc::Status::OK;
  };
  StartServer();
  EXPECT_EQ(Run({"cancel", "a"}), 0);
  EXPECT_EQ(out(), "jobs/a CANCELLING\n");
}

TEST_F(AppJobsTest, PlanOfAConfigAndOfWhatDoesNotFit) {
  std::atomic<bool> fits = true;
  server_.jobs.plan = [&](const v1::PlanJobRequest& request, v1::Plan& plan) {
    EXPECT_EQ(request.model_config_json(), "{\"hidden_size\": 64}");
    EXPECT_EQ(request.spec().train().batch_rows(), 64);
    plan.set_fits(fits);
    return grpc::Status::OK;
  };
  StartServer();
  const std::string config = FileOf("config.json", "{\"hidden_size\": 64}");
  const std::vector<std::string> arguments = {"plan", "--model-config", config, "--set",
                                              "train.batch_rows=64"};
  EXPECT_EQ(Run(arguments), 0) << err();
  fits = false;
  EXPECT_EQ(Run(arguments), 6);
  EXPECT_THAT(out(), HasSubstr("verdict: it does not fit"));
}

TEST_F(AppJobsTest, PlansForAMachineByNameOrFromAFile) {
  std::string machine;
  server_.jobs.plan = [&](const v1::PlanJobRequest& request, v1::Plan& plan) {
    machine = request.machine();
    plan.set_fits(true);
    return grpc::Status::OK;
  };
  StartServer();
  const std::string config = FileOf("config.json", "{}");
  EXPECT_EQ(Run({"plan", "--model-config", config, "--machine", "a100-pcie"}), 0) << err();
  EXPECT_EQ(machine, "a100-pcie");
  const std::string file = FileOf("machine.json", "{\"speeds\": {}}");
  EXPECT_EQ(Run({"plan", "--model-config", config, "--machine", file}), 0) << err();
  EXPECT_EQ(machine, "{\"speeds\": {}}");
}

TEST_F(AppJobsTest, AMissingResourceSaysWhatThereIs) {
  server_.jobs.get = [](const v1::GetJobRequest&, v1::Job&) { return grpc::Status::OK; };
  server_.jobs.cancel = [](const v1::CancelJobRequest&, v1::Job&) {
    return ErrorWithReason(grpc::StatusCode::NOT_FOUND, "jobs/b does not exist",
                           "RESOURCE_NOT_FOUND");
  };
  StartServer();
  EXPECT_EQ(Run({"cancel", "b"}), 3);
  EXPECT_THAT(err(), HasSubstr("error: jobs/b does not exist\n"));
}

}  // namespace
}  // namespace megatrain
