// The real engine process over its real socket, with a small model and small data.

#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "megatrain/engine/v1/engine.grpc.pb.h"
#include "runtime/data/prepared_data_for_test.h"
#include "runtime/trainer/toy_model_for_test.h"

extern char** environ;

namespace megatrain {
namespace {

using engine::v1::RunJobEvent;
using engine::v1::RunJobRequest;

constexpr char kEngine[] = "server/engine/megatrain-engine";

pid_t Spawn(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& word : command) {
    arguments.push_back(const_cast<char*>(word.c_str()));
  }
  arguments.push_back(nullptr);
  pid_t pid = -1;
  EXPECT_EQ(posix_spawn(&pid, arguments[0], nullptr, nullptr, arguments.data(), environ), 0);
  return pid;
}

// The status that waitpid gives when the process has ended.
int WaitForEnd(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

class EngineProcessTest : public testing::Test {
 protected:
  EngineProcessTest() {
    char folder[] = "/tmp/megatrain_engine_XXXXXX";  // a socket's path must be short
    folder_ = mkdtemp(folder);
    socket_ = folder_ + "/engine.sock";
    name_ = testing::UnitTest::GetInstance()->current_test_info()->name();
  }

  ~EngineProcessTest() override {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      WaitForEnd(pid_);
    }
    std::filesystem::remove_all(folder_);
  }

  void Start() {
    pid_ = Spawn({kEngine, "--socket", socket_, "--backend", "cpu", "--threads", "1"});
    Connect();
  }

  void Connect() {
    stub_ = engine::v1::EngineService::NewStub(
        grpc::CreateChannel("unix:" + socket_, grpc::InsecureChannelCredentials()));
  }

  // Waits until the engine serves.
  engine::v1::Engine GetEngine() {
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(60)));
    engine::v1::Engine engine;
    const grpc::Status status = stub_->GetEngine(&context, {}, &engine);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return engine;
  }

  RunJobRequest Request(const std::string& output) {
    RunJobRequest request;
    request.set_name("jobs/test");
    request.set_model_path(WriteToyModel("model_" + name_, ToyModel{}));
    request.set_data_path(WritePreparedData("data_" + name_, RandomRows(40, 12, 64, 7)));
    request.set_output_path(folder_ + "/" + output);
    v1::TrainOptions& train = *request.mutable_spec()->mutable_train();
    train.set_epochs(3);
    train.set_batch_rows(8);
    train.set_max_sequence_length(12);
    train.set_compute_dtype("fp32");
    train.set_max_gradient_norm(1.0);
    train.set_nonfinite_step_limit(3);
    v1::OptimizerOptions& optimizer = *train.mutable_optimizer();
    optimizer.set_name("adamw");
    optimizer.set_learning_rate(3e-3);
    optimizer.set_beta1(0.9);
    optimizer.set_beta2(0.95);
    optimizer.set_epsilon(1e-8);
    train.mutable_schedule()->set_name("linear");
    train.mutable_schedule()->set_warmup_steps(2);
    request.mutable_spec()->mutable_placement()->set_order("auto");
    return request;
  }

  std::unique_ptr<grpc::ClientReader<RunJobEvent>> RunJob(const RunJobRequest& request) {
    context_ = std::make_unique<grpc::ClientContext>();
    context_->set_wait_for_ready(true);
    return stub_->RunJob(context_.get(), request);
  }

  std::vector<RunJobEvent> ReadAll(grpc::ClientReader<RunJobEvent>& reader) {
    std::vector<RunJobEvent> events;
    RunJobEvent event;
    while (reader.Read(&event)) {
      events.push_back(event);
    }
    end_status_ = reader.Finish();
    return events;
  }

  std::vector<RunJobEvent> RunToEnd(const RunJobRequest& request) {
    return ReadAll(*RunJob(request));
  }

  // The reason of a job that fails; nothing may be left of its output.
  v1::JobReason RunToFailure(const RunJobRequest& request) {
    const std::vector<RunJobEvent> events = RunToEnd(request);
    EXPECT_TRUE(end_status_.ok()) << end_status_.error_message();
    EXPECT_FALSE(events.empty());
    EXPECT_TRUE(!events.empty() && events.back().has_failed());
    EXPECT_EQ(FilesLeft(), 0);
    return events.empty() ? v1::JobReason() : events.back().failed();
  }

  int FilesLeft() {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      count += entry.path() != socket_ ? 1 : 0;
    }
    return count;
  }

  std::string folder_;
  std::string socket_;
  std::string name_;
  pid_t pid_ = -1;
  std::unique_ptr<engine::v1::EngineService::Stub> stub_;
  std::unique_ptr<grpc::ClientContext> context_;
  grpc::Status end_status_;
};

std::vector<v1::StepRecord> StepsOf(const std::vector<RunJobEvent>& events) {
  std::vector<v1::StepRecord> steps;
  for (const RunJobEvent& event : events) {
    if (event.has_step()) {
      steps.push_back(event.step());
    }
  }
  return steps;
}

TEST_F(EngineProcessTest, RunsAJobAndThenAnotherFromItsResult) {
  Start();
  const engine::v1::Engine engine = GetEngine();
  EXPECT_EQ(engine.backend(), "cpu");
  EXPECT_GT(engine.baseline_bytes(), 0);
  EXPECT_GT(engine.device_memory_bytes(), 0);
  EXPECT_FALSE(engine.busy());

  RunJobRequest request = Request("output");
  const std::vector<RunJobEvent> events = RunToEnd(request);
  ASSERT_TRUE(end_status_.ok()) << end_status_.error_message();
  ASSERT_TRUE(events.back().has_finished()) << events.back().ShortDebugString();
  EXPECT_GT(events.back().finished().peak_host_bytes(), 0);
  EXPECT_EQ(events.front().phase(), "loading");
  const std::vector<v1::StepRecord> steps = StepsOf(events);
  ASSERT_EQ(steps.size(), 15u);
  EXPECT_LT(steps.back().loss(), steps.front().loss() - 0.3);
  EXPECT_GT(steps.back().end_time().seconds(), 1'600'000'000);
  bool planned = false;
  for (const RunJobEvent& event : events) {
    if (event.has_started()) {
      planned = true;
      EXPECT_EQ(event.started().planned_step_count(), 15);
      EXPECT_TRUE(event.started().plan().fits());
      EXPECT_GT(event.started().plan().host_size(), 5);
    }
    if (event.has_streams()) {
      EXPECT_EQ(event.streams().streams_size(), 8);
      EXPECT_GT(event.streams().resident_bytes(), 0);
    }
  }
  EXPECT_TRUE(planned);

  RunJobRequest second = request;
  second.set_model_path(request.output_path());
  second.set_output_path(folder_ + "/second");
  const std::vector<v1::StepRecord> more = StepsOf(RunToEnd(second));
  ASSERT_EQ(more.size(), 15u);
  EXPECT_LT(more.front().loss(), steps.front().loss() - 0.3);
}

TEST_F(EngineProcessTest, CancellingTheCallStopsTheJobAndTheNextOneRuns) {
  Start();
  RunJobRequest request = Request("output");
  request.mutable_spec()->mutable_train()->set_epochs(0);
  request.mutable_spec()->mutable_train()->set_steps(1'000'000);
  const std::unique_ptr<grpc::ClientReader<RunJobEvent>> reader = RunJob(request);
  RunJobEvent event;
  while (reader->Read(&event) && !event.has_step()) {
  }
  ASSERT_TRUE(event.has_step());
  EXPECT_TRUE(GetEngine().busy());

  // One job at a time.
  grpc::ClientContext second_context;
  const auto second = stub_->RunJob(&second_context, request);
  EXPECT_FALSE(second->Read(&event));
  EXPECT_EQ(second->Finish().error_code(), grpc::StatusCode::FAILED_PRECONDITION);

  context_->TryCancel();
  ReadAll(*reader);
  EXPECT_EQ(end_status_.error_code(), grpc::StatusCode::CANCELLED);
  while (GetEngine().busy()) {
  }
  EXPECT_EQ(FilesLeft(), 0);
  EXPECT_TRUE(RunToEnd(Request("output")).back().has_finished());
}

TEST_F(EngineProcessTest, WhatIsWrongIsSaidAndTheEngineGoesOn) {
  Start();
  RunJobRequest request = Request("output");
  request.set_model_path("/no/such/model");
  v1::JobReason reason = RunToFailure(request);
  EXPECT_EQ(reason.code(), "NOT_FOUND");
  EXPECT_NE(reason.message().find("/no/such/model"), std::string::npos) << reason.message();

  request = Request("output");
  request.set_data_path("relative/path");
  EXPECT_EQ(RunToFailure(request).code(), "INVALID_ARGUMENT");

  request = Request("output");
  request.mutable_spec()->mutable_train()->set_compute_dtype("fp8");
  reason = RunToFailure(request);
  EXPECT_EQ(reason.code(), "INVALID_ARGUMENT");
  EXPECT_NE(reason.message().find("one of bf16, fp32"), std::string::npos) << reason.message();

  request = Request("output");
  request.mutable_spec()->mutable_placement()->set_host_limit_bytes(1 << 20);
  EXPECT_EQ(RunToFailure(request).code(), "RESOURCE_EXHAUSTED");

  EXPECT_EQ(RunToFailure(RunJobRequest()).code(), "INVALID_ARGUMENT");
  EXPECT_TRUE(RunToEnd(Request("output")).back().has_finished());
}

TEST_F(EngineProcessTest, SigtermStopsARunningJobAndEndsTheProcess) {
  Start();
  RunJobRequest request = Request("output");
  request.mutable_spec()->mutable_train()->set_epochs(0);
  request.mutable_spec()->mutable_train()->set_steps(1'000'000);
  const std::unique_ptr<grpc::ClientReader<RunJobEvent>> reader = RunJob(request);
  RunJobEvent event;
  while (reader->Read(&event) && !event.has_step()) {
  }
  kill(pid_, SIGTERM);
  const int status = WaitForEnd(pid_);
  pid_ = -1;
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  ReadAll(*reader);
  EXPECT_FALSE(end_status_.ok());
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/output"));
}

TEST_F(EngineProcessTest, DiesWithItsParent) {
  // Orphans come to this process, so that it can wait for them.
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  const std::string pid_file = folder_ + "/pid";
  const pid_t parent =
      Spawn({"/bin/sh", "-c", "\"$0\" --socket \"$1\" --threads 1 & echo $! > \"$2\"; wait",
             kEngine, socket_, pid_file});
  Connect();
  GetEngine();
  FILE* file = fopen(pid_file.c_str(), "r");
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(fscanf(file, "%d", &pid_), 1);
  fclose(file);
  ASSERT_EQ(kill(parent, SIGKILL), 0);
  WaitForEnd(parent);
  const int status = WaitForEnd(pid_);
  pid_ = -1;
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
}

TEST_F(EngineProcessTest, BadFlagsEndWithAMessage) {
  for (const std::vector<std::string>& flags :
       std::vector<std::vector<std::string>>{{},
                                             {"--socket", socket_, "--backend", "tpu"},
                                             {"--socket", socket_, "--threads", "-1"},
                                             {"--socket", std::string(200, 'x')},
                                             {"--socket", "/no/such/folder/s"}}) {
    std::vector<std::string> command = {kEngine};
    command.insert(command.end(), flags.begin(), flags.end());
    const int status = WaitForEnd(Spawn(command));
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) != 0);
  }
}

}  // namespace
}  // namespace megatrain
