// The real engine process over its real socket, with a small model and small data.

#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "server/engine/engine_process_for_test.h"

namespace megatrain {
namespace {

using engine::v1::RunJobEvent;
using engine::v1::RunJobRequest;

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

TEST_F(EngineProcessTest, DoesNotStartWhenItsParentDiedWhileItWasLoaded) {
  const pid_t gone = Spawn({"/bin/true"});
  WaitForEnd(gone);
  const int status =
      WaitForEnd(Spawn({kEngine, "--socket", socket_, "--parent", std::to_string(gone)}));
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) != 0) << status;
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
