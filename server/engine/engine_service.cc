#include "server/engine/engine_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/planner/machine.h"
#include "server/engine/call_observer.h"
#include "server/engine/job_conversion.h"
#include "spdlog/spdlog.h"

namespace megatrain {

EngineService::EngineService(const Options& options, Trainer& trainer, const Clock& clock)
    : options_(options), trainer_(trainer), clock_(clock), start_time_(clock.MonotonicNow()) {}

void EngineService::RunJobs() {
  while (const std::shared_ptr<RunJobCall> call = NextCall()) {
    spdlog::info("{}: starts", call->request().name());
    RunOne(*call);
    {
      MutexLock lock(&mutex_);
      current_.reset();
      running_ = false;
    }
    // Only now, so that a client that has seen the end can start the next job at once.
    call->End(call->cancelled() ? grpc::Status(grpc::StatusCode::CANCELLED, "the job was stopped")
                                : grpc::Status::OK);
    call->WaitUntilDone();
  }
}

// Waits for a call; nullptr when the service stops.
std::shared_ptr<RunJobCall> EngineService::NextCall() {
  MutexLock lock(&mutex_);
  while (!stopping_ && current_ == nullptr) {
    changed_.Wait(&mutex_);
  }
  if (stopping_) {
    if (current_ != nullptr) {  // came, but was not begun
      current_->End(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the engine stops"));
      current_.reset();
    }
    return nullptr;
  }
  running_ = true;
  return current_;
}

void EngineService::RunOne(RunJobCall& call) {
  CallObserver observer(call, clock_, start_time_, past_figures_);
  const absl::StatusOr<TrainJob> job = TrainJobFromProto(call.request());
  const absl::StatusOr<TrainResult> result =
      job.ok() ? trainer_.Run(*job, observer) : absl::StatusOr<TrainResult>(job.status());
  past_figures_ = observer.total();
  if (!result.ok()) {
    spdlog::warn("{}: {}", call.request().name(), result.status().ToString());
  } else if (result->paused_checkpoint.empty()) {
    spdlog::info("{}: succeeded", call.request().name());
  } else {
    spdlog::info("{}: paused, its state is in {}", call.request().name(),
                 result->paused_checkpoint);
  }
  call.Send(EndToProto(result));
}

void EngineService::Stop() {
  MutexLock lock(&mutex_);
  const bool first = !std::exchange(stopping_, true);
  if (current_ != nullptr) {
    const bool saves = first && running_ && !current_->request().checkpoint_folder().empty();
    saves ? current_->SaveAndEnd() : current_->Cancel();
  }
  changed_.NotifyAll();
}

grpc::ServerUnaryReactor* EngineService::GetEngine(grpc::CallbackServerContext* context,
                                                   const engine::v1::GetEngineRequest*,
                                                   engine::v1::Engine* response) {
  response->set_backend(options_.backend);
  response->set_baseline_bytes(options_.baseline_bytes);
  response->set_device_memory_bytes(
      options_.device_memory_bytes > 0
          ? options_.device_memory_bytes
          : ReadAvailableHostMemory("").value_or(HostMemory{}).available_bytes);
  response->set_machine_profile_json(options_.machine_profile_json);
  {
    MutexLock lock(&mutex_);
    response->set_busy(current_ != nullptr);
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerWriteReactor<engine::v1::RunJobEvent>* EngineService::RunJob(
    grpc::CallbackServerContext*, const engine::v1::RunJobRequest* request) {
  const std::shared_ptr<RunJobCall> call = RunJobCall::Make(*request);
  MutexLock lock(&mutex_);
  if (stopping_) {
    call->End(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the engine stops"));
  } else if (current_ != nullptr) {
    call->End(grpc::Status(
        grpc::StatusCode::FAILED_PRECONDITION,
        absl::StrCat("the engine runs ", current_->request().name(), ": one job at a time")));
  } else {
    current_ = call;
    changed_.NotifyAll();
  }
  return call.get();
}

grpc::ServerUnaryReactor* EngineService::SaveCheckpoint(
    grpc::CallbackServerContext* context, const engine::v1::SaveCheckpointRequest* request,
    engine::v1::SaveCheckpointResponse*) {
  grpc::Status status;
  {
    MutexLock lock(&mutex_);
    if (current_ == nullptr) {
      status = grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "no job runs");
    } else if (current_->request().checkpoint_folder().empty()) {
      status = grpc::Status(grpc::StatusCode::FAILED_PRECONDITION,
                            absl::StrCat(current_->request().name(), " has no checkpoint_folder"));
    } else {
      current_->RequestSave(SaveRequestFromProto(*request));
    }
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

}  // namespace megatrain
