#include "runtime/trainer/training_loop.h"

#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/status_macros.h"
#include "runtime/checkpoint/training_log.h"

namespace megatrain {
namespace {

constexpr size_t kStepsOnTheirWay = 2;

// `crc`, of the rows before, goes on over those of `batch`.
uint32_t ExtendByRows(uint32_t crc, const StepBatch& batch) {
  for (const OwnedMicroBatch& micro_batch : batch.micro_batches) {
    crc = ExtendCrc32c(crc, {reinterpret_cast<const char*>(micro_batch.rows.data()),
                             micro_batch.rows.size() * sizeof(int64_t)});
  }
  return crc;
}

// What was submitted and has no result yet.
struct SubmittedStep {
  int64_t step = 0;  // from 0
  double learning_rate = 0;
  StepBatch batch;  // viewed by the pipeline
};

class TrainingLoop {
 public:
  TrainingLoop(const TrainJob& job, const LoopParts& parts, TrainingProgress progress)
      : job_(job),
        parts_(parts),
        schedule_(job.schedule),
        end_{.progress = std::move(progress)},
        last_end_(parts.clock.MonotonicNow()) {
    schedule_.total_steps = parts_.reader.step_count();
  }

  absl::StatusOr<LoopEnd> Run() {
    const absl::Status status = RunSteps();
    // Also after an error: steps that are on their way read the batches that go with this.
    const absl::Status drained = parts_.pipeline.Drain();
    MT_RETURN_IF_ERROR(status);
    MT_RETURN_IF_ERROR(drained);
    end_.last_checkpoint = parts_.saver.last_id();
    return end_;
  }

 private:
  absl::Status RunSteps() {
    while (!end_.paused) {
      const int64_t next = end_.progress.step + static_cast<int64_t>(submitted_.size());
      MT_RETURN_IF_ERROR(CheckStop(next));
      if (SomethingIsDue(next)) {
        MT_RETURN_IF_ERROR(FinishAll());
        MT_RETURN_IF_ERROR(StandStill());
      } else if (!Ends(next) && submitted_.size() < kStepsOnTheirWay) {
        MT_RETURN_IF_ERROR(Submit(next));
      } else if (submitted_.empty()) {
        return absl::OkStatus();
      } else {
        MT_RETURN_IF_ERROR(Finish());
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckStop(int64_t next) const {
    return parts_.observer.StopRequested()
               ? absl::CancelledError(
                     absl::StrCat("the job was asked to stop before step ", next + 1))
               : absl::OkStatus();
  }

  // Whether no step is to be done after `step` of them.
  bool Ends(int64_t step) const {
    return end_.progress.stopped_early || step >= parts_.reader.step_count();
  }

  // Whether an evaluation or a save comes before the next step, `step` of them being submitted.
  bool SomethingIsDue(int64_t step) {
    TakeRequest();
    TrainingProgress then = end_.progress;
    then.step = step;
    const bool due = request_.has_value() || parts_.evaluator.Due(then, Ends(step)) ||
                     TriggerOf(step).has_value();
    if (due) {
      due_time_ = parts_.clock.MonotonicNow();
    }
    return due;
  }

  // Whether the job is asked to save and stop.
  bool TakeRequest() {
    std::optional<SaveRequest> request;
    if (!job_.save.folder.empty()) {
      request = parts_.observer.TakeSaveRequest();
    }
    if (request.has_value()) {
      request_ = request;
    }
    return request_.has_value() && request_->then_stop;
  }

  // By which of the job's own wishes its state is to be saved after `step` steps.
  std::optional<CheckpointTrigger> TriggerOf(int64_t step) const {
    const bool saved = parts_.saver.saved_step() == step && !saved_without_evaluation_;
    if (job_.save.at_end && Ends(step) && !saved && !job_.save.folder.empty()) {
      return CheckpointTrigger::kFinal;
    }
    return parts_.saver.Due(step) || saved_without_evaluation_
               ? std::optional(CheckpointTrigger::kPeriodic)
               : std::nullopt;
  }

  // Every submitted step has its result. A pause comes at once, also within an evaluation, which is
  // done again by who goes on, and then saved; else an evaluation comes first, so that the
  // checkpoint tells its loss.
  absl::Status StandStill() {
    TrainingProgress& progress = end_.progress;
    const bool pauses = request_.has_value() && request_->then_stop;
    if (!pauses && parts_.evaluator.Due(progress, Ends(progress.step))) {
      MT_ASSIGN_OR_RETURN(const std::optional<EvaluationReport> report,
                          parts_.evaluator.Run(progress, [this] { return TakeRequest(); }));
      Keep(report);
      saved_without_evaluation_ = report.has_value() && !job_.save.folder.empty() &&
                                  parts_.saver.saved_step() == progress.step;
    }
    if (const auto request = std::exchange(request_, std::nullopt)) {
      MT_RETURN_IF_ERROR(Save(*request));
    } else if (const auto trigger = TriggerOf(progress.step)) {
      MT_RETURN_IF_ERROR(Save({.trigger = *trigger}));
    }
    last_end_ = parts_.clock.MonotonicNow();
    return absl::OkStatus();
  }

  absl::Status Save(const SaveRequest& request) {
    MT_ASSIGN_OR_RETURN(const SaveRequest served,
                        parts_.saver.Save(end_.progress, request, due_time_));
    saved_without_evaluation_ = false;
    end_.paused = served.then_stop;
    return absl::OkStatus();
  }

  absl::Status FinishAll() {
    while (!submitted_.empty()) {
      MT_RETURN_IF_ERROR(Finish());
    }
    return absl::OkStatus();
  }

  absl::Status Submit(int64_t step) {
    MT_ASSIGN_OR_RETURN(StepBatch batch, parts_.reader.Next());
    submitted_.push_back({step, LearningRate(schedule_, step), std::move(batch)});
    const SubmittedStep& submitted = submitted_.back();
    StepInput input;
    for (const OwnedMicroBatch& micro_batch : submitted.batch.micro_batches) {
      input.micro_batches.push_back(micro_batch.View());
    }
    input.loss_token_count = submitted.batch.loss_token_count;
    input.optimizer = job_.optimizer;
    input.optimizer.learning_rate = submitted.learning_rate;
    input.max_gradient_norm = job_.max_gradient_norm;
    return parts_.pipeline.SubmitStep(std::move(input));
  }

  // Waits for the oldest step and tells of it.
  absl::Status Finish() {
    MT_ASSIGN_OR_RETURN(const StepResult result, parts_.pipeline.WaitStep());
    const SubmittedStep step = std::move(submitted_.front());
    submitted_.pop_front();
    TrainingProgress& progress = end_.progress;
    progress.rows_crc32c = ExtendByRows(progress.rows_crc32c, step.batch);
    const absl::Duration now = parts_.clock.MonotonicNow();
    Tell({.step = step.step + 1,
          .loss = result.loss,
          .gradient_norm = result.gradient_norm,
          .learning_rate = step.learning_rate,
          .token_count = step.batch.token_count,
          .loss_token_count = step.batch.loss_token_count,
          .duration = now - last_end_,
          .skipped = !result.finite,
          .rows_crc32c = progress.rows_crc32c});
    parts_.watchdog.StepEnded(now - last_end_);
    last_end_ = now;
    progress.step = step.step + 1;
    progress.skipped_in_a_row = result.finite ? 0 : progress.skipped_in_a_row + 1;
    if (result.finite) {
      return absl::OkStatus();
    }
    const std::string line =
        absl::StrCat("step ", step.step + 1, " was skipped: ", Describe(result, step));
    parts_.observer.OnLogLine(line);
    if (progress.skipped_in_a_row >= job_.nonfinite_step_limit) {
      return absl::AbortedError(
          absl::StrCat(progress.skipped_in_a_row,
                       " steps in a row were not finite (train.nonfinite_step_limit); ", line,
                       "; lower the learning rate, or look at that row"));
    }
    return absl::OkStatus();
  }

  void Keep(const std::optional<EvaluationReport>& report) {
    if (report.has_value()) {
      parts_.saver.Keep({.kind = LogEntry::Kind::kEvaluation,
                         .step = report->step,
                         .loss = report->loss,
                         .loss_token_count = report->loss_token_count});
    }
  }

  void Tell(const StepReport& report) {
    parts_.saver.Keep(
        {.kind = report.skipped ? LogEntry::Kind::kSkippedStep : LogEntry::Kind::kStep,
         .step = report.step,
         .loss = report.loss,
         .gradient_norm = report.gradient_norm,
         .learning_rate = report.learning_rate,
         .token_count = report.token_count,
         .loss_token_count = report.loss_token_count});
    parts_.observer.OnStep(report, parts_.pipeline.Figures());
  }

  // What was not finite, where it came from and which row of the data it met.
  std::string Describe(const StepResult& result, const SubmittedStep& step) const {
    const NonFinite& where = result.non_finite;
    std::string text = where.tensor.empty()
                           ? absl::StrCat("the loss is not finite")
                           : absl::StrCat("the gradient of ", where.tensor, " is not finite");
    if (where.unit >= 0) {
      absl::StrAppend(&text, ", first in unit ", where.unit, " of the model");
    }
    if (where.micro_batch >= 0 && where.document >= 0) {
      absl::StrAppend(&text, ", row ",
                      step.batch.micro_batches[where.micro_batch].rows[where.document],
                      " of the prepared data");
    }
    return text;
  }

  const TrainJob& job_;
  const LoopParts parts_;
  LearningRateSchedule schedule_;
  LoopEnd end_;
  std::deque<SubmittedStep> submitted_;
  std::optional<SaveRequest> request_;
  bool saved_without_evaluation_ = false;  // the state of now, before it was evaluated
  absl::Duration due_time_;
  absl::Duration last_end_;
};

}  // namespace

absl::StatusOr<LoopEnd> RunTrainingLoop(const TrainJob& job, const LoopParts& parts,
                                        TrainingProgress progress) {
  return TrainingLoop(job, parts, std::move(progress)).Run();
}

}  // namespace megatrain
