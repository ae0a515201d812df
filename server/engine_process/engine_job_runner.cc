#include "server/engine_process/engine_job_runner.h"

#include <grpcpp/grpcpp.h>

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "runtime/base/check.h"

namespace megatrain {
namespace {

// From the break of a connection to the notice of the death that caused it.
constexpr absl::Duration kDeathNotice = absl::Seconds(10);
// One optimizer step of a large model, in which the engine does not look up.
constexpr absl::Duration kStopTimeout = absl::Minutes(15);
constexpr absl::Duration kAnswerTimeout = absl::Seconds(5);
constexpr absl::Duration kFreePoll = absl::Milliseconds(50);

bool IsLast(const engine::v1::RunJobEvent& event) {
  return event.has_finished() || event.has_failed() || event.has_paused();
}

// The connection, not the engine's code, made this status.
bool IsTransportError(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE ||
         status.error_code() == grpc::StatusCode::INTERNAL ||
         status.error_code() == grpc::StatusCode::CANCELLED ||
         status.error_code() == grpc::StatusCode::UNKNOWN;
}

}  // namespace

EngineJobRunner::~EngineJobRunner() {
  Stop();
  if (thread_.joinable()) {
    thread_.join();
  }
}

bool EngineJobRunner::Ready() {
  if (!supervisor_.GetState().ready) {
    return false;
  }
  MutexLock lock(&mutex_);
  return !running_;
}

void EngineJobRunner::Start(int64_t run, const engine::v1::RunJobRequest& request) {
  if (thread_.joinable()) {
    thread_.join();  // its last event was taken, so it is at its end
  }
  {
    MutexLock lock(&mutex_);
    MT_CHECK(!running_);
    running_ = true;
    run_ = run;
    stop_asked_ = false;
    context_ = std::make_unique<grpc::ClientContext>();
  }
  thread_ = std::thread([this, run, request] { Run(run, request); });
}

void EngineJobRunner::Save(v1::CheckpointTrigger trigger, bool then_stop) {
  engine::v1::SaveCheckpointRequest request;
  request.set_trigger(trigger);
  request.set_then_stop(then_stop);
  MutexLock lock(&mutex_);
  if (running_) {
    saver_.Run([this, run = run_, request] { AskToSave(run, request); });
  }
}

void EngineJobRunner::AskToSave(int64_t run, const engine::v1::SaveCheckpointRequest& request) {
  while (IsRunning(run)) {
    const EngineSupervisor::State state = supervisor_.GetState();
    if (state.stub == nullptr) {
      return;  // it died, and the run ends by that
    }
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(clock_.WallNow() + kAnswerTimeout));
    engine::v1::SaveCheckpointResponse response;
    const grpc::Status status = state.stub->SaveCheckpoint(&context, request, &response);
    if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED && request.then_stop()) {
      Stop();  // an engine that cannot save can still be stopped
    }
    if (status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED) {
      return;  // taken, or too late for this run, or the engine died
    }
  }
}

bool EngineJobRunner::IsRunning(int64_t run) {
  MutexLock lock(&mutex_);
  return running_ && run_ == run;
}

void EngineJobRunner::Stop() {
  MutexLock lock(&mutex_);
  if (running_ && !stop_asked_) {
    stop_asked_ = true;
    context_->TryCancel();
  }
}

std::vector<RunnerEvent> EngineJobRunner::TakeEvents() {
  MutexLock lock(&mutex_);
  return std::exchange(events_, {});
}

void EngineJobRunner::Run(int64_t run, const engine::v1::RunJobRequest& request) {
  const EngineSupervisor::State state = supervisor_.GetState();
  if (state.stub == nullptr) {
    EngineDied died{state.last_death};
    Put({run, died}, /*last=*/true);
    return;
  }
  grpc::Status status;
  if (!ReadEvents(run, request, *state.stub, &status)) {
    Put(EndWithoutEvent(run, state.generation, status), /*last=*/true);
  }
}

bool EngineJobRunner::ReadEvents(int64_t run, const engine::v1::RunJobRequest& request,
                                 engine::v1::EngineService::StubInterface& stub,
                                 grpc::Status* status) {
  grpc::ClientContext* context = nullptr;
  {
    MutexLock lock(&mutex_);
    context = context_.get();
  }
  const auto reader = stub.RunJob(context, request);
  engine::v1::RunJobEvent event;
  std::optional<engine::v1::RunJobEvent> last;
  while (reader->Read(&event)) {
    if (IsLast(event)) {
      last = event;
    } else {
      Put({run, event}, /*last=*/false);
    }
  }
  *status = reader->Finish();  // after it the engine is free
  if (last.has_value()) {
    Put({run, *last}, /*last=*/true);
  }
  return last.has_value();
}

RunnerEvent EngineJobRunner::EndWithoutEvent(int64_t run, int64_t generation,
                                             const grpc::Status& status) {
  bool stopped = false;
  {
    MutexLock lock(&mutex_);
    stopped = stop_asked_;
  }
  if (stopped) {
    WaitUntilFree(generation);
    return {run, RunStopped()};
  }
  if (status.ok() || !IsTransportError(status)) {
    engine::v1::RunJobEvent failed;
    failed.mutable_failed()->set_code("ENGINE_FAILED");
    failed.mutable_failed()->set_message(status.ok() ? "the engine ended the job without a result"
                                                     : status.error_message());
    return {run, failed};
  }
  std::optional<v1::JobReason> reason = supervisor_.WaitForDeath(generation, kDeathNotice);
  if (!reason.has_value()) {
    supervisor_.Kill(generation, absl::StrCat("its connection broke: ", status.error_message()));
    reason = supervisor_.WaitForDeath(generation, kDeathNotice);
  }
  return {run, EngineDied{reason.value_or(supervisor_.GetState().last_death)}};
}

void EngineJobRunner::WaitUntilFree(int64_t generation) {
  const absl::Duration end = clock_.MonotonicNow() + kStopTimeout;
  while (true) {
    const EngineSupervisor::State state = supervisor_.GetState();
    if (state.generation != generation || state.stub == nullptr) {
      return;  // it died
    }
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(clock_.WallNow() + kAnswerTimeout));
    engine::v1::Engine engine;
    if (state.stub->GetEngine(&context, {}, &engine).ok() && !engine.busy()) {
      return;
    }
    if (clock_.MonotonicNow() > end) {
      supervisor_.Kill(generation, "it did not stop a job");
      supervisor_.WaitForDeath(generation, kDeathNotice);
      return;
    }
    MutexLock lock(&mutex_);
    changed_.WaitFor(&mutex_, kFreePoll);
  }
}

void EngineJobRunner::Put(RunnerEvent event, bool last) {
  {
    MutexLock lock(&mutex_);
    events_.push_back(std::move(event));
    running_ = !last;
  }
  wake_();
}

}  // namespace megatrain
