// For tests: keeps what a job tells, and asks it for things at given moments.

#ifndef RUNTIME_TRAINER_RECORDING_OBSERVER_H_
#define RUNTIME_TRAINER_RECORDING_OBSERVER_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/trainer/train_job.h"

namespace megatrain {

class RecordingObserver final : public TrainObserver {
 public:
  void OnPhase(TrainPhase phase) override {
    phases.push_back(phase);
    on_phase(phase);
  }
  void OnPhaseProgress(TrainPhase phase, int64_t done_bytes, int64_t all_bytes) override {
    progress.push_back({phase, done_bytes, all_bytes});
  }
  void OnPlanned(const Plan& p, int64_t steps, int64_t first) override {
    plan = p;
    step_count = steps;
    first_step = first;
    on_planned();
  }
  void OnStep(const StepReport& report, const AllStreamFigures& figures) override {
    steps.push_back(report);
    last_figures = figures;
  }
  void OnLogLine(const std::string& line) override { log += line + "\n"; }
  void OnStall(const std::string& what) override { stalls.push_back(what); }
  void OnCheckpoint(const CheckpointReport& report) override {
    checkpoints.push_back(report);
    stops = stops || stops_after_checkpoint;
  }
  void OnEvaluation(const EvaluationReport& report) override { evaluations.push_back(report); }
  std::optional<SaveRequest> OnCheckpointFailed(const CheckpointFailure& failure) override {
    failures.push_back(failure);
    return on_failure();
  }
  void OnDiskWait(const CheckpointFailure& failure) override { disk_waits.push_back(failure); }
  std::optional<SaveRequest> TakeSaveRequest() override {
    const bool evaluating = !phases.empty() && phases.back() == TrainPhase::kEvaluating;
    const bool now = request.has_value() && static_cast<int64_t>(steps.size()) >= request_after &&
                     (evaluating || !requests_in_evaluation);
    return now ? std::exchange(request, std::nullopt) : std::nullopt;
  }
  bool StopRequested() override {
    const bool evaluating = !phases.empty() && phases.back() == TrainPhase::kEvaluating;
    return stops || static_cast<int64_t>(steps.size()) >= stop_after ||
           (evaluating && stops_in_evaluation);
  }

  struct Progress {
    TrainPhase phase;
    int64_t done_bytes;
    int64_t all_bytes;

    bool operator==(const Progress&) const = default;
  };

  std::vector<TrainPhase> phases;
  std::vector<Progress> progress;
  Plan plan;
  int64_t step_count = 0;
  int64_t first_step = 0;
  std::vector<StepReport> steps;
  AllStreamFigures last_figures;
  std::string log;
  std::vector<std::string> stalls;
  std::vector<CheckpointReport> checkpoints;
  std::vector<EvaluationReport> evaluations;
  std::vector<CheckpointFailure> failures;
  std::vector<CheckpointFailure> disk_waits;

  // When the job is to stop as if its process died: after so many steps are told of, and so on.
  int64_t stop_after = std::numeric_limits<int64_t>::max();
  bool stops_after_checkpoint = false;
  bool stops_in_evaluation = false;
  bool stops = false;

  // Asked for once so many steps are told of.
  std::optional<SaveRequest> request;
  int64_t request_after = 0;
  bool requests_in_evaluation = false;  // and not before one
  std::function<void(TrainPhase)> on_phase = [](TrainPhase) {};
  std::function<std::optional<SaveRequest>()> on_failure = [] { return std::nullopt; };
  std::function<void()> on_planned = [] {};
};

}  // namespace megatrain

#endif  // RUNTIME_TRAINER_RECORDING_OBSERVER_H_
