#include "client/cli/app.h"

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "client/lib/scripted_server.h"
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

v1::Job MakeJob(v1::JobState state) {
  v1::Job job;
  job.set_name("jobs/a");
  job.set_state(state);
  job.set_attempt(1);
  job.set_planned_step_count(2);
  job.mutable_spec()->set_model("models/m");
  job.mutable_plan()->set_fits(true);
  job.mutable_plan()->set_verdict("it fits");
  if (state == v1::JOB_STATE_SUCCEEDED) {
    job.set_output_version("models/out/versions/1");
    job.mutable_last_step()->set_step(2);
    job.mutable_last_step()->set_loss(0.5);
  }
  if (state == v1::JOB_STATE_FAILED) {
    job.mutable_reason()->set_code("ENGINE_DIED");
    job.mutable_reason()->set_message("the engine died: signal 9");
  }
  return job;
}

v1::JobEvent SnapshotOf(v1::JobState state) {
  v1::JobEvent event;
  *event.mutable_snapshot() = MakeJob(state);
  return event;
}

v1::JobEvent StepEvent(int64_t step, double loss) {
  v1::JobEvent event;
  event.set_sequence(step);
  event.mutable_step()->set_step(step);
  event.mutable_step()->set_loss(loss);
  return event;
}

v1::JobEvent FinalOf(v1::JobState state) {
  v1::JobEvent event;
  event.set_sequence(100);
  *event.mutable_final() = MakeJob(state);
  return event;
}

class AppTest : public ::testing::Test {
 protected:
  AppTest() {
    folder_ = ::testing::TempDir() + "/" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    variables_["XDG_STATE_HOME"] = folder_ + "/state";
    job_file_ = FileOf("job.yaml", "model: models/m\ndataset: datasets/d\ntrain: {steps: 2}\n");
  }

  std::string FileOf(const std::string& name, const std::string& content) {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << content;
    return folder_ + "/" + name;
  }

  // Runs a command line against the scripted server.
  int Run(const std::vector<std::string>& arguments) {
    out_.str("");
    err_.str("");
    if (server_started_) {
      variables_["MEGATRAIN_ADDRESS"] = server_.address();
    }
    return RunApp(arguments, environment_);
  }

  void StartServer() {
    server_.Start();
    server_started_ = true;
  }

  // CreateJob accepts; WatchJob ends in `state`.
  void AcceptJobs(v1::JobState state) {
    server_.jobs.create = [this](const v1::CreateJobRequest& request, v1::Job& job) {
      created_.push_back(request);
      job = MakeJob(v1::JOB_STATE_QUEUED);
      return grpc::Status::OK;
    };
    server_.jobs.watch = [state](grpc::ServerContext&, const v1::WatchJobRequest&, auto& writer) {
      writer.Write(SnapshotOf(v1::JOB_STATE_RUNNING));
      writer.Write(StepEvent(1, 4));
      writer.Write(StepEvent(2, 0.5));
      writer.Write(FinalOf(state));
      return grpc::Status::OK;
    };
    StartServer();
  }

  std::string out() const { return out_.str(); }
  std::string err() const { return err_.str(); }

  std::string folder_;
  std::string job_file_;
  std::map<std::string, std::string> variables_;
  std::ostringstream out_;
  std::ostringstream err_;
  SystemClock clock_;
  Interruption interruption_;
  Environment environment_{
      .out = out_,
      .err = err_,
      .variable = [this](const char* name) { return variables_[name]; },
      .clock = clock_,
      .interruption = interruption_,
  };
  std::vector<v1::CreateJobRequest> created_;
  bool server_started_ = false;
  ScriptedServer server_;
};

TEST_F(AppTest, HelpIsDataAndNamesTheExitCodes) {
  EXPECT_EQ(Run({"--help"}), 0);
  EXPECT_THAT(out(), AllOf(HasSubstr("submit"), HasSubstr("Exit codes:")));
  EXPECT_THAT(err(), IsEmpty());
  EXPECT_EQ(Run({"submit", "--help"}), 0);
  EXPECT_THAT(out(), HasSubstr("--follow"));
}

TEST_F(AppTest, WrongUsageNamesTheHelpThatThereIs) {
  EXPECT_EQ(Run({"model", "import", "/some/folder"}), 2);
  EXPECT_THAT(err(), HasSubstr("try: megatrain model import --help"));
}

TEST_F(AppTest, AnUnknownFlagNamesTheNearestOne) {
  EXPECT_EQ(Run({"submit", job_file_, "--folow"}), 2);
  EXPECT_EQ(err(),
            "error: unknown flag --folow\ntry: --follow, the nearest known flag\nreason: USAGE\n");
  EXPECT_THAT(out(), IsEmpty());
  EXPECT_EQ(Run({"submit", "--dry-rum"}), 2) << "also when the file is missing";
  EXPECT_THAT(err(), HasSubstr("--dry-run, the nearest known flag"));
  EXPECT_EQ(Run({"ps", "--adress=x"}), 2) << "a flag of all verbs";
  EXPECT_THAT(err(), HasSubstr("try: --address"));
}

TEST_F(AppTest, AnUnknownVerbNamesTheNearestOne) {
  EXPECT_EQ(Run({"sumbit", job_file_}), 2);
  EXPECT_THAT(err(), HasSubstr("unknown command sumbit\ntry: submit, the nearest known command"));
  EXPECT_EQ(Run({"model", "imprt", "x"}), 2);
  EXPECT_THAT(err(), HasSubstr("try: import"));
}

TEST_F(AppTest, OtherMistakesOfUsage) {
  EXPECT_EQ(Run({}), 2);
  EXPECT_THAT(err(), StartsWith("error: "));
  EXPECT_EQ(Run({"submit"}), 2);
  EXPECT_THAT(err(), HasSubstr("FILE is required"));
  EXPECT_EQ(Run({"submit", job_file_, "--follow", "--wait"}), 2);
  EXPECT_EQ(Run({"ps", "-o", "xml"}), 2);
  EXPECT_EQ(Run({"ps", "--address", "nowhere"}), 2);
  EXPECT_THAT(err(), HasSubstr("\"nowhere\" is no address"));
  EXPECT_EQ(Run({"plan"}), 2);
}

TEST_F(AppTest, AJobFileWithAnUnknownKeyIsUsage) {
  const std::string file = FileOf("bad.yaml", "model: models/m\ntrian: {steps: 1}\n");
  EXPECT_EQ(Run({"submit", file}), 2);
  EXPECT_THAT(err(), AllOf(HasSubstr("bad.yaml:2: unknown key trian"),
                           HasSubstr("try: train, the nearest known key"),
                           HasSubstr("reason: INVALID_JOB_FILE")));
  EXPECT_EQ(Run({"submit", folder_ + "/absent.yaml"}), 3);
}

TEST_F(AppTest, AnAbsentServerIsUnavailable) {
  variables_["MEGATRAIN_ADDRESS"] = "unix:/nowhere/nobody.sock";
  EXPECT_EQ(Run({"ps", "--timeout", "0.5"}), 9) << err();
  EXPECT_EQ(Run({"watch", "a"}), 8);
  EXPECT_THAT(err(), AllOf(HasSubstr("cannot reach a server at unix:"), HasSubstr("try: start")));
}

TEST_F(AppTest, SubmitTellsNamePositionPlanAndNext) {
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

TEST_F(AppTest, EachSubmitIsANewRequestOnceItIsAnswered) {
  AcceptJobs(v1::JOB_STATE_SUCCEEDED);
  ASSERT_EQ(Run({"submit", job_file_, "-o", "name"}), 0);
  EXPECT_EQ(out(), "jobs/a\n");
  ASSERT_EQ(Run({"submit", job_file_}), 0);
  EXPECT_NE(created_[0].request_id(), created_[1].request_id());
}

TEST_F(AppTest, ARepeatAfterALostAnswerIsTheSameRequest) {
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

TEST_F(AppTest, DryRunMakesNothing) {
  AcceptJobs(v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Run({"submit", job_file_, "--dry-run"}), 0);
  EXPECT_TRUE(created_[0].validate_only());
  EXPECT_THAT(out(), AllOf(HasSubstr("verdict: it fits"), Not(HasSubstr("jobs/a"))));
  EXPECT_THAT(err(), Not(HasSubstr("Next:")));
}

TEST_F(AppTest, AJobThatDoesNotFitIsSix) {
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

TEST_F(AppTest, FollowExitsWithTheJobsEnd) {
  AcceptJobs(v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Run({"submit", job_file_, "--follow"}), 0);
  EXPECT_THAT(err(), AllOf(HasSubstr("step 1/2, loss 4.0000"),
                           HasSubstr("jobs/a SUCCEEDED: models/out/versions/1 after 2 steps")));
  EXPECT_THAT(out(), HasSubstr("job:     jobs/a"));
}

TEST_F(AppTest, AFailedJobIsTenWithItsReason) {
  AcceptJobs(v1::JOB_STATE_FAILED);
  EXPECT_EQ(Run({"submit", job_file_, "--wait"}), 10);
  EXPECT_THAT(err(), AllOf(HasSubstr("error: jobs/a FAILED: the engine died: signal 9\n"),
                           HasSubstr("try: megatrain logs a\n"), HasSubstr("ENGINE_DIED"),
                           Not(HasSubstr("step 1"))));
}

TEST_F(AppTest, ACancelledJobIsEleven) {
  AcceptJobs(v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(Run({"watch", "a"}), 11);
}

TEST_F(AppTest, WatchAsJsonGivesALineAnEvent) {
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

TEST_F(AppTest, SubmitFollowAsJsonGivesTheFinalJobOnly) {
  AcceptJobs(v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Run({"submit", job_file_, "--follow", "-o", "json"}), 0);
  EXPECT_EQ(nlohmann::json::parse(out())["outputVersion"], "models/out/versions/1");
}

TEST_F(AppTest, ControlCDetachesAndTheJobGoesOn) {
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

TEST_F(AppTest, OnATerminalTheBarIsRedrawnAndRemoved) {
  environment_.err_is_terminal = true;
  environment_.unicode = true;
  AcceptJobs(v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Run({"watch", "a"}), 0);
  EXPECT_THAT(err(), AllOf(HasSubstr("\r\x1b[K"), HasSubstr("\r\x1b[Kjobs/a SUCCEEDED")));
}

TEST_F(AppTest, ColourFollowsTerminalFlagAndNoColor) {
  environment_.err_is_terminal = true;
  EXPECT_EQ(Run({"submit", "/absent"}), 3);
  EXPECT_THAT(err(), HasSubstr("\x1b[1;31merror:"));
  variables_["NO_COLOR"] = "1";
  Run({"submit", "/absent"});
  EXPECT_THAT(err(), StartsWith("error: "));
  Run({"submit", "/absent", "--color", "always"});
  EXPECT_THAT(err(), HasSubstr("\x1b[1;31merror:"));
}

TEST_F(AppTest, PsGoesThroughAllPages) {
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

TEST_F(AppTest, LogsPrintsWhatThereIs) {
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

TEST_F(AppTest, CancelTellsTheState) {
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

TEST_F(AppTest, PlanOfAConfigAndOfWhatDoesNotFit) {
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

TEST_F(AppTest, ImportWaitsAndTellsAFailure) {
  std::atomic<int> asked = 0;
  server_.models.import_model = [](const v1::ImportModelRequest& request,
                                   v1::ModelVersion& version) {
    EXPECT_EQ(request.model_id(), "toy");
    EXPECT_THAT(request.path(), StartsWith("/")) << "absolute";
    version.set_name("models/toy/versions/1");
    version.set_state(v1::MODEL_STATE_IMPORTING);
    return grpc::Status::OK;
  };
  server_.models.get = [&](const v1::GetModelVersionRequest& request, v1::ModelVersion& version) {
    version.set_name(request.name());
    version.set_trainable(true);
    version.set_state(asked++ == 0 ? v1::MODEL_STATE_IMPORTING : v1::MODEL_STATE_READY);
    if (asked > 2) {
      version.set_state(v1::MODEL_STATE_FAILED);
      version.set_failure("model.safetensors is truncated");
    }
    return grpc::Status::OK;
  };
  StartServer();
  EXPECT_EQ(Run({"model", "import", "toy_folder", "--name", "models/toy", "--wait"}), 0) << err();
  EXPECT_EQ(out(), "models/toy/versions/1 READY\n");
  EXPECT_EQ(Run({"model", "import", "toy_folder", "--name", "toy", "--wait"}), 1);
  EXPECT_THAT(err(), AllOf(HasSubstr("error: model.safetensors is truncated"),
                           HasSubstr("reason: IMPORT_FAILED")));
  EXPECT_EQ(Run({"model", "import", "toy_folder", "--name", "toy"}), 0);
  EXPECT_EQ(out(), "models/toy/versions/1 IMPORTING\n");
}

TEST_F(AppTest, ExportPrintsThePath) {
  server_.models.export_model = [](const v1::ExportModelRequest& request,
                                   v1::ExportModelResponse& response) {
    response.set_name(request.name());
    response.set_path(request.path());
    return grpc::Status::OK;
  };
  StartServer();
  EXPECT_EQ(Run({"model", "export", "toy", "/tmp/out"}), 0);
  EXPECT_EQ(out(), "/tmp/out\n");
  EXPECT_THAT(err(), HasSubstr("models/toy: 0 B written"));
}

TEST_F(AppTest, DatasetUploadSendsChecksAndNamesABadRow) {
  v1::DatasetState state = v1::DATASET_STATE_READY;
  server_.datasets.create = [&](const v1::CreateDatasetRequest& request, v1::Dataset& dataset) {
    EXPECT_EQ(request.dataset_id(), "d");
    EXPECT_EQ(request.on_bad_row(), "skip");
    dataset.set_name("datasets/d");
    dataset.set_state(v1::DATASET_STATE_CHECKING);
    return grpc::Status::OK;
  };
  server_.datasets.get = [&](const v1::GetDatasetRequest&, v1::Dataset& dataset) {
    dataset.set_name("datasets/d");
    dataset.set_state(state);
    dataset.set_row_count(3);
    dataset.set_failure("line 2: bad JSON");
    return grpc::Status::OK;
  };
  StartServer();
  const std::string file = FileOf("rows.jsonl", "{}\n{}\n{}\n");
  const std::vector<std::string> arguments = {"dataset", "upload",       file,  "--name",
                                              "d",       "--on-bad-row", "skip"};
  EXPECT_EQ(Run(arguments), 0) << err();
  EXPECT_EQ(out(), "datasets/d\n");
  EXPECT_THAT(err(), HasSubstr("3 rows"));
  EXPECT_EQ(Run(arguments), 0);
  EXPECT_THAT(err(), HasSubstr("already there"));
  state = v1::DATASET_STATE_FAILED;
  EXPECT_EQ(Run(arguments), 1);
  EXPECT_THAT(err(), HasSubstr("rows.jsonl: line 2: bad JSON"));
  EXPECT_EQ(Run({"dataset", "upload", folder_ + "/absent", "--name", "d"}), 3);
}

TEST_F(AppTest, ListsOfModelsAndDatasets) {
  server_.models.list = [](const v1::ListModelVersionsRequest&,
                           v1::ListModelVersionsResponse& response) {
    response.add_model_versions()->set_name("models/m/versions/1");
    return grpc::Status::OK;
  };
  server_.datasets.list = [](const v1::ListDatasetsRequest&, v1::ListDatasetsResponse& response) {
    response.add_datasets()->set_name("datasets/d");
    return grpc::Status::OK;
  };
  StartServer();
  EXPECT_EQ(Run({"model", "ls", "-o", "name"}), 0);
  EXPECT_EQ(out(), "models/m/versions/1\n");
  EXPECT_EQ(Run({"dataset", "ls", "-o", "json"}), 0);
  EXPECT_EQ(nlohmann::json::parse(out())["datasets"][0]["name"], "datasets/d");
  EXPECT_EQ(Run({"model", "ls"}), 0);
  EXPECT_THAT(out(), StartsWith("MODEL"));
}

TEST_F(AppTest, ServerShowsItsState) {
  server_.status.get = [](const v1::GetServerRequest&, v1::Server& server) {
    server.set_state(v1::SERVER_STATE_READY);
    server.set_engine_backend("cpu");
    return grpc::Status::OK;
  };
  StartServer();
  EXPECT_EQ(Run({"server"}), 0);
  EXPECT_THAT(out(), AllOf(HasSubstr("state:          READY"), HasSubstr("engine:         cpu")));
}

TEST_F(AppTest, AMissingResourceSaysWhatThereIs) {
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
