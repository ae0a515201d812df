#include "runtime/trainer/job_evaluator.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace megatrain {

bool JobEvaluator::Due(const TrainingProgress& progress, bool ends) const {
  const bool done =
      progress.last_evaluation.has_value() && progress.last_evaluation->step == progress.step;
  if (rows_.data == nullptr || progress.step == 0 || done) {
    return false;
  }
  return ends || (options_.every_steps > 0 && progress.step % options_.every_steps == 0);
}

absl::StatusOr<std::optional<EvaluationReport>> JobEvaluator::Run(
    TrainingProgress& progress, const std::function<bool()>& interrupted) {
  parts_.progress.Begin(TrainPhase::kEvaluating);
  MT_ASSIGN_OR_RETURN(std::optional<EvaluationReport> report, Measure(interrupted));
  if (!report.has_value()) {
    return report;
  }
  report->step = progress.step;
  Note(*report, progress);
  parts_.observer.OnEvaluation(*report);
  if (progress.stopped_early) {
    parts_.observer.OnLogLine(absl::StrCat(
        "training ends early, after step ", progress.step, ": ", progress.evaluations_without_gain,
        " evaluations in a row brought no gain over the loss ", progress.best_evaluation->loss,
        " after step ", progress.best_evaluation->step));
  }
  parts_.progress.Begin(TrainPhase::kTraining);
  return report;
}

absl::StatusOr<std::optional<EvaluationReport>> JobEvaluator::Measure(
    const std::function<bool()>& interrupted) {
  const absl::Duration start = parts_.clock.MonotonicNow();
  BatchOptions batches = rows_.batches;
  batches.epochs = 1;
  batches.steps = 0;
  MT_ASSIGN_OR_RETURN(BatchReader reader, BatchReader::Create(*rows_.data, batches, rows_.part));
  EvaluationReport report;
  double loss_sum = 0;
  for (int64_t i = 0; i < reader.step_count(); ++i) {
    if (parts_.observer.StopRequested()) {
      return absl::CancelledError("the job was asked to stop during an evaluation");
    }
    if (interrupted()) {
      return std::nullopt;
    }
    MT_ASSIGN_OR_RETURN(const StepBatch batch, reader.Next());
    std::vector<MicroBatch> micro_batches;
    for (const OwnedMicroBatch& micro_batch : batch.micro_batches) {
      micro_batches.push_back(micro_batch.View());
    }
    MT_ASSIGN_OR_RETURN(const double loss, parts_.pipeline.Evaluate(micro_batches));
    loss_sum += loss;
    report.loss_token_count += batch.loss_token_count;
  }
  report.loss = loss_sum / static_cast<double>(report.loss_token_count);
  report.duration = parts_.clock.MonotonicNow() - start;
  return report;
}

// A loss that is not a number is never a gain.
void JobEvaluator::Note(const EvaluationReport& report, TrainingProgress& progress) const {
  progress.last_evaluation = EvaluationMark{report.step, report.loss};
  const bool gains = progress.best_evaluation.has_value()
                         ? report.loss < progress.best_evaluation->loss - options_.min_delta
                         : report.loss == report.loss;
  if (gains) {
    progress.best_evaluation = progress.last_evaluation;
  }
  progress.evaluations_without_gain = gains ? 0 : progress.evaluations_without_gain + 1;
  progress.stopped_early = options_.patience > 0 && progress.best_evaluation.has_value() &&
                           progress.evaluations_without_gain >= options_.patience;
}

}  // namespace megatrain
