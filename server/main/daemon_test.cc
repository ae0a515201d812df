// The wired daemon in one process, over real sockets, with a scripted engine process.

#include "server/main/daemon.h"

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "megatrain/v1/job_service.grpc.pb.h"
#include "megatrain/v1/server_service.grpc.pb.h"
#include "runtime/base/clock.h"
#include "server/config/daemon_config.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

class DaemonTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/daemon-XXXXXX";  // TEST_TMPDIR can be too long for a socket
    folder_ = mkdtemp(name);
    config_.state_dir = folder_ + "/state";
    config_.listen = "127.0.0.1:0";
    config_.unix_socket = folder_ + "/api.sock";
    config_.metrics_listen = "127.0.0.1:0";
    config_.engine = "server/engine_process/scripted_engine";
  }

  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<Daemon> Start() {
    auto daemon = Daemon::Start(config_, clock_);
    EXPECT_TRUE(daemon.ok()) << daemon.status();
    return daemon.ok() ? *std::move(daemon) : nullptr;
  }

  static std::shared_ptr<grpc::Channel> Connect(const std::string& address) {
    return grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
  }

  static v1::Server GetServer(const std::string& address) {
    const auto stub = v1::ServerService::NewStub(Connect(address));
    grpc::ClientContext context;
    v1::Server server;
    const grpc::Status status = stub->GetServer(&context, {}, &server);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return server;
  }

  std::string ReadState(const std::string& name) {
    std::ifstream file(config_.state_dir + "/" + name);
    return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  }

  SystemClock clock_;
  std::string folder_;
  DaemonConfig config_;
};

TEST_F(DaemonTest, ServesOnBothSocketsAndLeavesItsAddresses) {
  const auto daemon = Start();
  EXPECT_EQ(ReadState("address"), daemon->address());
  EXPECT_EQ(ReadState("metrics_address"), daemon->metrics_address());
  const v1::Server server = GetServer(daemon->address());
  EXPECT_EQ(server.state(), v1::SERVER_STATE_READY);
  EXPECT_EQ(server.engine_backend(), "cpu");
  EXPECT_GT(server.host_available_bytes(), 0);
  EXPECT_EQ(server.max_row_bytes(), 1 << 20);
  EXPECT_EQ(GetServer("unix:" + config_.unix_socket).version(), server.version());
}

TEST_F(DaemonTest, TheEngineIsStarted) {
  const auto daemon = Start();
  v1::Server server;
  while (!(server = GetServer(daemon->address())).engine_ready()) {
  }
  EXPECT_EQ(server.engine_restart_count(), 0);
}

TEST_F(DaemonTest, AStateFolderIsForOneDaemon) {
  const auto daemon = Start();
  config_.unix_socket.clear();
  const auto second = Daemon::Start(config_, clock_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("in use by another megatraind"));
  EXPECT_EQ(ReadState("address"), daemon->address()) << "the first one's stays";
}

TEST_F(DaemonTest, ATakenPortIsAClearErrorAndLeavesTheStateFree) {
  const auto daemon = Start();
  config_.listen = daemon->address();
  config_.unix_socket.clear();
  config_.state_dir = folder_ + "/other";
  const auto second = Daemon::Start(config_, clock_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(daemon->address()));
  config_.listen = "127.0.0.1:0";
  EXPECT_TRUE(Start() != nullptr);
}

TEST_F(DaemonTest, StopRefusesChangesAndClosesEverything) {
  auto daemon = Start();
  const auto jobs = v1::JobService::NewStub(Connect(daemon->address()));
  const std::atomic<bool> hurry = false;
  daemon->Stop(hurry);
  EXPECT_EQ(ReadState("address"), "");
  grpc::ClientContext context;
  v1::Job job;
  EXPECT_EQ(jobs->CreateJob(&context, {}, &job).error_code(), grpc::StatusCode::UNAVAILABLE);
  daemon.reset();
  EXPECT_TRUE(Start() != nullptr) << "the state can be used again";
}

TEST_F(DaemonTest, AnEngineThatCannotStartIsToldToWhoAsksForAPlan) {
  config_.engine = "/nowhere/megatrain-engine";
  const auto daemon = Start();
  const auto jobs = v1::JobService::NewStub(Connect(daemon->address()));
  v1::PlanJobRequest request;
  request.set_model_config_json(
      R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 64,
          "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
          "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
          "rms_norm_eps": 1e-5, "tie_word_embeddings": true, "hidden_act": "silu"})");
  std::string message;
  do {
    grpc::ClientContext context;
    v1::Plan plan;
    const grpc::Status status = jobs->PlanJob(&context, request, &plan);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
    message = status.error_message();
  } while (message.find("/nowhere") == std::string::npos);
  EXPECT_FALSE(GetServer(daemon->address()).engine_ready());
}

}  // namespace
}  // namespace megatrain
