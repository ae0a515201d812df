#ifndef RUNTIME_TRAINER_JOB_EVALUATOR_H_
#define RUNTIME_TRAINER_JOB_EVALUATOR_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/clock.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/data/batch_reader.h"
#include "runtime/data/prepared_data.h"
#include "runtime/pipeline/step_pipeline.h"
#include "runtime/trainer/job_progress.h"
#include "runtime/trainer/train_job.h"

namespace megatrain {

// Measures a job on rows that it does not learn from: always the same ones, in the same batches, so
// that equal weights have equal bits of loss. One thread at a time.
class JobEvaluator {
 public:
  struct Rows {
    const PreparedData* data = nullptr;  // null: the job is never evaluated
    BatchOptions batches;                // micro_batch_rows as planned; epochs and steps not read
    RowPart part = RowPart::kTraining;   // kHeldOut of the training data, all of others
  };

  struct Parts {
    const Clock& clock;
    StepPipeline& pipeline;
    JobProgress& progress;
    TrainObserver& observer;
  };

  // All parts outlive it.
  JobEvaluator(const Parts& parts, const EvaluationOptions& options, const Rows& rows)
      : parts_(parts), options_(options), rows_(rows) {}

  // Whether `progress` is a time for one; `ends` when no step is left to do.
  bool Due(const TrainingProgress& progress, bool ends) const;

  // Notes the result in `progress`: the best loss so far, and whether training is to end early. All
  // submitted steps count. Ends without one once `interrupted`, asked before each batch, says so,
  // and then it is as if it had not begun. CANCELLED when the observer asks to stop.
  absl::StatusOr<std::optional<EvaluationReport>> Run(TrainingProgress& progress,
                                                      const std::function<bool()>& interrupted);

 private:
  absl::StatusOr<std::optional<EvaluationReport>> Measure(const std::function<bool()>& interrupted);
  void Note(const EvaluationReport& report, TrainingProgress& progress) const;

  const Parts parts_;
  const EvaluationOptions options_;
  const Rows rows_;
};

}  // namespace megatrain

#endif  // RUNTIME_TRAINER_JOB_EVALUATOR_H_
