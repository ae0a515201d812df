#include "server/engine/call_observer.h"

#include <unistd.h>

#include <algorithm>
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

}  // namespace

void CallObserver::OnPhase(TrainPhase phase) {
  engine::v1::RunJobEvent event;
  event.set_phase(std::string(TrainPhaseName(phase)));
  call_.Send(std::move(event));
}

void CallObserver::OnPhaseProgress(TrainPhase phase, int64_t done_bytes, int64_t all_bytes) {
  engine::v1::RunJobEvent event;
  event.set_phase(absl::StrCat(std::string(TrainPhaseName(phase)), ", ", FormatBytes(done_bytes),
                               " of ", FormatBytes(all_bytes)));
  call_.Send(std::move(event));
}

void CallObserver::OnPlanned(const Plan& plan, int64_t step_count, int64_t first_step) {
  engine::v1::RunJobEvent event;
  *event.mutable_started() = StartedToProto(plan, step_count, first_step);
  call_.Send(std::move(event));
}

void CallObserver::OnStep(const StepReport& report, const AllStreamFigures& figures) {
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

void CallObserver::OnLogLine(const std::string& line) {
  spdlog::info("{}: {}", call_.request().name(), line);
  engine::v1::RunJobEvent event;
  event.set_log_line(line);
  call_.Send(std::move(event));
}

// The daemon takes the reason from the exit code, and the words from the log's last line.
void CallObserver::OnStall(const std::string& what) {
  const std::string line = absl::StrCat(call_.request().name(), " stalled: ", what, "\n");
  // Not through the logger, nor by a return: a thread that is stuck may hold what they need.
  if (write(STDERR_FILENO, line.data(), line.size()) < 0) {
    _exit(kStalledExitCode);  // without the words
  }
  _exit(kStalledExitCode);
}

void CallObserver::OnCheckpoint(const CheckpointReport& report) {
  engine::v1::RunJobEvent event;
  *event.mutable_checkpoint() = CheckpointToProto(report);
  call_.Send(std::move(event));
}

void CallObserver::OnEvaluation(const EvaluationReport& report) {
  engine::v1::RunJobEvent event;
  *event.mutable_evaluation() = EvaluationToProto(report, clock_.WallNow());
  call_.Send(std::move(event));
}

void CallObserver::TellFailure(const CheckpointFailure& failure) {
  spdlog::error("{}: no checkpoint after step {}: {}", call_.request().name(), failure.step,
                failure.status.ToString());
  engine::v1::RunJobEvent event;
  *event.mutable_checkpoint_failed() = CheckpointFailureToProto(failure);
  call_.Send(std::move(event));
}

std::optional<SaveRequest> CallObserver::OnCheckpointFailed(const CheckpointFailure& failure) {
  TellFailure(failure);
  return call_.WaitForSaveRequest();
}

}  // namespace megatrain
