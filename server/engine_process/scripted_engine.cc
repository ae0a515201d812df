// An engine for tests of the process around it: a real gRPC server that does to itself what the
// job's name says. Usage: scripted_engine --socket PATH [--die-at-start].

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <iostream>
#include <string>

#include "megatrain/engine/v1/engine.grpc.pb.h"
#include "server/engine_process/engine_exit.h"

namespace megatrain {
namespace {

class ScriptedEngine final : public engine::v1::EngineService::Service {
 public:
  grpc::Status GetEngine(grpc::ServerContext*, const engine::v1::GetEngineRequest*,
                         engine::v1::Engine* response) override {
    response->set_backend("cpu");
    response->set_baseline_bytes(getpid());
    response->set_busy(busy_);
    return grpc::Status::OK;
  }

  grpc::Status RunJob(grpc::ServerContext* context, const engine::v1::RunJobRequest* request,
                      grpc::ServerWriter<engine::v1::RunJobEvent>* writer) override {
    const std::string& name = request->name();
    if (name == "jobs/refuse") {
      return {grpc::StatusCode::INVALID_ARGUMENT, "spec.train.steps is 0"};
    }
    engine::v1::RunJobEvent event;
    event.mutable_started()->set_planned_step_count(2);
    writer->Write(event);
    if (name == "jobs/kill") {
      raise(SIGKILL);
    } else if (name == "jobs/exit") {
      _exit(3);
    } else if (name == "jobs/stall") {
      std::cerr << "jobs/stall stalled: compute is in layer 3" << std::endl;
      _exit(kStalledExitCode);
    } else if (name == "jobs/fail") {
      event.mutable_failed()->set_code("OUT_OF_DATA");
      writer->Write(event);
    } else if (name == "jobs/pause") {
      while (!then_stop_ && !context->IsCancelled()) {
        usleep(1000);
      }
      event.mutable_paused()->set_checkpoint_id(v1::CheckpointTrigger_Name(trigger_.load()));
      writer->Write(event);
    } else if (name == "jobs/wait") {
      busy_ = true;
      while (!context->IsCancelled()) {
        usleep(1000);
      }
      usleep(100'000);  // the step ends
      busy_ = false;
    } else {
      event.mutable_step()->set_step(1);
      writer->Write(event);
      event.mutable_finished()->set_peak_host_bytes(7);
      writer->Write(event);
    }
    return grpc::Status::OK;
  }

  grpc::Status SaveCheckpoint(grpc::ServerContext*,
                              const engine::v1::SaveCheckpointRequest* request,
                              engine::v1::SaveCheckpointResponse*) override {
    trigger_ = request->trigger();
    then_stop_ = request->then_stop();
    return grpc::Status::OK;
  }

 private:
  std::atomic<bool> busy_ = false;
  std::atomic<v1::CheckpointTrigger> trigger_ = v1::CHECKPOINT_TRIGGER_UNSPECIFIED;
  std::atomic<bool> then_stop_ = false;
};

int Main(int argc, char** argv) {
  const std::string last = argv[argc - 1];
  if (last == "--die-at-start") {
    std::cerr << "some warning\nno such device\n";
    return 4;
  }
  ScriptedEngine service;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(std::string("unix:") + argv[2], grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  builder.BuildAndStart()->Wait();
  return 0;
}

}  // namespace
}  // namespace megatrain

int main(int argc, char** argv) { return megatrain::Main(argc, argv); }
