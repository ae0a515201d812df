// For tests: the real engine process over its real socket, with a small model and small data.

#ifndef SERVER_ENGINE_ENGINE_PROCESS_FOR_TEST_H_
#define SERVER_ENGINE_ENGINE_PROCESS_FOR_TEST_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "megatrain/engine/v1/engine.grpc.pb.h"

namespace megatrain {

inline constexpr char kEngine[] = "server/engine/megatrain-engine";

pid_t Spawn(const std::vector<std::string>& command);

// The status that waitpid gives when the process has ended.
int WaitForEnd(pid_t pid);

class EngineProcessTest : public testing::Test {
 protected:
  EngineProcessTest();
  ~EngineProcessTest() override;

  void Start();
  void Connect();

  // The process dies at once, as when the system kills it.
  void Kill();

  // Waits until the engine serves.
  engine::v1::Engine GetEngine();

  engine::v1::RunJobRequest Request(const std::string& output);
  std::unique_ptr<grpc::ClientReader<engine::v1::RunJobEvent>> RunJob(
      const engine::v1::RunJobRequest& request);
  std::vector<engine::v1::RunJobEvent> ReadAll(grpc::ClientReader<engine::v1::RunJobEvent>& reader);
  std::vector<engine::v1::RunJobEvent> RunToEnd(const engine::v1::RunJobRequest& request);

  // The reason of a job that fails; nothing may be left of its output.
  v1::JobReason RunToFailure(const engine::v1::RunJobRequest& request);

  int FilesLeft();

  std::string folder_;
  std::string socket_;
  std::string name_;
  pid_t pid_ = -1;
  std::unique_ptr<engine::v1::EngineService::Stub> stub_;
  std::unique_ptr<grpc::ClientContext> context_;
  grpc::Status end_status_;
};

std::vector<v1::StepRecord> StepsOf(const std::vector<engine::v1::RunJobEvent>& events);

}  // namespace megatrain

#endif  // SERVER_ENGINE_ENGINE_PROCESS_FOR_TEST_H_
