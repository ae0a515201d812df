#include "server/engine/engine_service.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/planner/machine.h"
#include "runtime/planner/planner.h"
#include "server/engine/job_conversion.h"
#include "server/engine_process/engine_exit.h"
#include "spdlog/spdlog.h"

namespace megatrain {
namespace {

// Of a process that runs many jobs: the figures of the jobs before and of this one. Every figure
// only grows. `first` are the figures of this job's first report, at `first_time` after the process
// began: what neither they nor the past account for was a wait for work.
AllStreamFigures AddPast(const AllStreamFigures& past, const AllStreamFigures& job,
                         const AllStreamFigures& first, absl::Duration first_time) {
  AllStreamFigures total = past;
  for (size_t i = 0; i < total.size(); ++i) {
    StreamFigures& stream = total[i];
    const absl::Duration outside =
        std::max(absl::ZeroDuration(), first_time - past[i].wall - first[i].wall);
    stream.busy += job[i].busy;
    for (size_t reason = 0; reason < stream.waits.size(); ++reason) {
      stream.waits[reason] += job[i].waits[reason];
    }
    stream.waits[static_cast<size_t>(WaitReason::kNoWork)] += outside;
    stream.operation_count += job[i].operation_count;
    stream.wall += outside + job[i].wall;
  }
  return total;
}

// Turns what the trainer tells into events of the call.
class CallObserver final : public TrainObserver {
 public:
  CallObserver(RunJobCall& call, const Clock& clock, absl::Duration process_start,
               const AllStreamFigures& past)
      : call_(call), clock_(clock), process_start_(process_start), past_(past), total_(past) {}

  void OnPhase(TrainPhase phase) override {
    engine::v1::RunJobEvent event;
    event.set_phase(std::string(TrainPhaseName(phase)));
    call_.Send(std::move(event));
  }

  void OnPhaseProgress(TrainPhase phase, int64_t done_bytes, int64_t all_bytes) override {
    engine::v1::RunJobEvent event;
    event.set_phase(absl::StrCat(std::string(TrainPhaseName(phase)), ", ", FormatBytes(done_bytes),
                                 " of ", FormatBytes(all_bytes)));
    call_.Send(std::move(event));
  }

  void OnPlanned(const Plan& plan, int64_t step_count) override {
    engine::v1::RunJobEvent event;
    *event.mutable_started() = StartedToProto(plan, step_count);
    call_.Send(std::move(event));
  }

  void OnStep(const StepReport& report, const AllStreamFigures& figures) override {
    engine::v1::RunJobEvent step;
    *step.mutable_step() = StepRecordToProto(report, clock_.WallNow());
    call_.Send(std::move(step));
    if (!first_.has_value()) {
      first_ = figures;
      first_time_ = clock_.MonotonicNow() - process_start_;
    }
    total_ = AddPast(past_, figures, *first_, first_time_);
    engine::v1::RunJobEvent streams;
    *streams.mutable_streams() =
        StreamFiguresToProto(total_, ReadProcessMemory("").value_or(ProcessMemory{}));
    call_.Send(std::move(streams));
  }

  void OnLogLine(const std::string& line) override {
    spdlog::info("{}: {}", call_.request().name(), line);
    engine::v1::RunJobEvent event;
    event.set_log_line(line);
    call_.Send(std::move(event));
  }

  // The daemon takes the reason from the exit code, and the words from the log's last line.
  void OnStall(const std::string& what) override {
    const std::string line = absl::StrCat(call_.request().name(), " stalled: ", what, "\n");
    // Not through the logger, nor by a return: a thread that is stuck may hold what they need.
    if (write(STDERR_FILENO, line.data(), line.size()) < 0) {
      _exit(kStalledExitCode);  // without the words
    }
    _exit(kStalledExitCode);
  }

  bool StopRequested() override { return call_.cancelled(); }

  const AllStreamFigures& total() const { return total_; }

 private:
  RunJobCall& call_;
  const Clock& clock_;
  const absl::Duration process_start_;
  const AllStreamFigures past_;
  std::optional<AllStreamFigures> first_;  // of the first report, which came at `first_time_`
  absl::Duration first_time_;
  AllStreamFigures total_;
};

}  // namespace

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
  engine::v1::RunJobEvent event;
  if (result.ok()) {
    spdlog::info("{}: succeeded", call.request().name());
    event.mutable_finished()->set_peak_host_bytes(result->peak_host_bytes);
  } else {
    spdlog::warn("{}: {}", call.request().name(), result.status().ToString());
    *event.mutable_failed() = ReasonToProto(result.status());
  }
  call.Send(std::move(event));
}

void EngineService::Stop() {
  MutexLock lock(&mutex_);
  stopping_ = true;
  if (current_ != nullptr) {
    current_->Cancel();
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

}  // namespace megatrain
