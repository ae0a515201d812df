#include "server/engine/engine_process_for_test.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/data/prepared_data_for_test.h"
#include "runtime/trainer/toy_model_for_test.h"

extern char** environ;

namespace megatrain {

using engine::v1::RunJobEvent;
using engine::v1::RunJobRequest;

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

EngineProcessTest::EngineProcessTest() {
  char folder[] = "/tmp/megatrain_engine_XXXXXX";  // a socket's path must be short
  folder_ = mkdtemp(folder);
  socket_ = folder_ + "/engine.sock";
  name_ = testing::UnitTest::GetInstance()->current_test_info()->name();
}

EngineProcessTest::~EngineProcessTest() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    WaitForEnd(pid_);
  }
  std::filesystem::remove_all(folder_);
}

void EngineProcessTest::Start() {
  pid_ = Spawn({kEngine, "--socket", socket_, "--backend", "cpu", "--threads", "1"});
  Connect();
}

void EngineProcessTest::Connect() {
  stub_ = engine::v1::EngineService::NewStub(
      grpc::CreateChannel("unix:" + socket_, grpc::InsecureChannelCredentials()));
}

void EngineProcessTest::Kill() {
  kill(pid_, SIGKILL);
  WaitForEnd(pid_);
  pid_ = -1;
}

engine::v1::Engine EngineProcessTest::GetEngine() {
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(60)));
  engine::v1::Engine engine;
  const grpc::Status status = stub_->GetEngine(&context, {}, &engine);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return engine;
}

RunJobRequest EngineProcessTest::Request(const std::string& output) {
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

std::unique_ptr<grpc::ClientReader<RunJobEvent>> EngineProcessTest::RunJob(
    const RunJobRequest& request) {
  context_ = std::make_unique<grpc::ClientContext>();
  context_->set_wait_for_ready(true);
  return stub_->RunJob(context_.get(), request);
}

std::vector<RunJobEvent> EngineProcessTest::ReadAll(grpc::ClientReader<RunJobEvent>& reader) {
  std::vector<RunJobEvent> events;
  RunJobEvent event;
  while (reader.Read(&event)) {
    events.push_back(event);
  }
  end_status_ = reader.Finish();
  return events;
}

std::vector<RunJobEvent> EngineProcessTest::RunToEnd(const RunJobRequest& request) {
  return ReadAll(*RunJob(request));
}

v1::JobReason EngineProcessTest::RunToFailure(const RunJobRequest& request) {
  const std::vector<RunJobEvent> events = RunToEnd(request);
  EXPECT_TRUE(end_status_.ok()) << end_status_.error_message();
  EXPECT_FALSE(events.empty());
  EXPECT_TRUE(!events.empty() && events.back().has_failed());
  EXPECT_EQ(FilesLeft(), 0);
  return events.empty() ? v1::JobReason() : events.back().failed();
}

int EngineProcessTest::FilesLeft() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    count += entry.path() != socket_ ? 1 : 0;
  }
  return count;
}

std::vector<v1::StepRecord> StepsOf(const std::vector<RunJobEvent>& events) {
  std::vector<v1::StepRecord> steps;
  for (const RunJobEvent& event : events) {
    if (event.has_step()) {
      steps.push_back(event.step());
    }
  }
  return steps;
}

}  // namespace megatrain
