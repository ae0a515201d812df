#ifndef SERVER_ENGINE_CALL_OBSERVER_H_
#define SERVER_ENGINE_CALL_OBSERVER_H_

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "runtime/base/clock.h"
#include "runtime/trainer/train_job.h"
#include "server/engine/run_job_call.h"

namespace megatrain {

// Turns what the trainer tells into events of a call, and gives it what the call is asked for.
class CallObserver final : public TrainObserver {
 public:
  // `past`: the figures of this process's jobs before this one. `process_start` is monotonic.
  CallObserver(RunJobCall& call, const Clock& clock, absl::Duration process_start,
               const AllStreamFigures& past)
      : call_(call), clock_(clock), process_start_(process_start), past_(past), total_(past) {}

  void OnPhase(TrainPhase phase) override;
  void OnPhaseProgress(TrainPhase phase, int64_t done_bytes, int64_t all_bytes) override;
  void OnPlanned(const Plan& plan, int64_t step_count, int64_t first_step) override;
  void OnStep(const StepReport& report, const AllStreamFigures& figures) override;
  void OnLogLine(const std::string& line) override;
  void OnStall(const std::string& what) override;
  void OnCheckpoint(const CheckpointReport& report) override;
  void OnEvaluation(const EvaluationReport& report) override;
  std::optional<SaveRequest> OnCheckpointFailed(const CheckpointFailure& failure) override;
  void OnDiskWait(const CheckpointFailure& failure) override { TellFailure(failure); }
  std::optional<SaveRequest> TakeSaveRequest() override { return call_.TakeSaveRequest(); }
  bool StopRequested() override { return call_.cancelled(); }

  // Of the jobs before and of this one.
  const AllStreamFigures& total() const { return total_; }

 private:
  void TellFailure(const CheckpointFailure& failure);

  RunJobCall& call_;
  const Clock& clock_;
  const absl::Duration process_start_;
  const AllStreamFigures past_;
  std::optional<AllStreamFigures> first_;  // of the first report, which came at `first_time_`
  absl::Duration first_time_;
  AllStreamFigures total_;
};

}  // namespace megatrain

#endif  // SERVER_ENGINE_CALL_OBSERVER_H_
