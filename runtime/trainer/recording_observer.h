// For tests: keeps what a job tells, and stops it when it is told to.

#ifndef RUNTIME_TRAINER_RECORDING_OBSERVER_H_
#define RUNTIME_TRAINER_RECORDING_OBSERVER_H_

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "runtime/trainer/train_job.h"

namespace megatrain {

class RecordingObserver final : public TrainObserver {
 public:
  void OnPhase(TrainPhase phase) override { phases.push_back(phase); }
  void OnPhaseProgress(TrainPhase phase, int64_t done_bytes, int64_t all_bytes) override {
    progress.push_back({phase, done_bytes, all_bytes});
  }
  void OnPlanned(const Plan& p, int64_t steps) override {
    plan = p;
    step_count = steps;
  }
  void OnStep(const StepReport& report, const AllStreamFigures& figures) override {
    steps.push_back(report);
    last_figures = figures;
  }
  void OnLogLine(const std::string& line) override { log += line + "\n"; }
  void OnStall(const std::string& what) override { stalls.push_back(what); }
  bool StopRequested() override { return static_cast<int64_t>(steps.size()) >= stop_after; }

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
  std::vector<StepReport> steps;
  AllStreamFigures last_figures;
  std::string log;
  std::vector<std::string> stalls;
  int64_t stop_after = std::numeric_limits<int64_t>::max();
};

}  // namespace megatrain

#endif  // RUNTIME_TRAINER_RECORDING_OBSERVER_H_
