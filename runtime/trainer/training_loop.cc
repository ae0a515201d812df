#include "runtime/trainer/training_loop.h"

#include <deque>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

constexpr size_t kStepsOnTheirWay = 2;

// What was submitted and has no result yet.
struct SubmittedStep {
  int64_t step = 0;  // from 0
  double learning_rate = 0;
  StepBatch batch;  // viewed by the pipeline
};

class TrainingLoop {
 public:
  TrainingLoop(const TrainJob& job, const Clock& clock, BatchReader& reader, StepPipeline& pipeline,
               TrainObserver& observer, Watchdog& watchdog)
      : job_(job),
        schedule_(job.schedule),
        clock_(clock),
        reader_(reader),
        pipeline_(pipeline),
        observer_(observer),
        watchdog_(watchdog),
        last_end_(clock.MonotonicNow()) {
    schedule_.total_steps = reader.step_count();
  }

  absl::Status Run() {
    const absl::Status status = RunSteps();
    // Also after an error: steps that are on their way read the batches that go with this.
    const absl::Status drained = pipeline_.Drain();
    return status.ok() ? drained : status;
  }

 private:
  absl::Status RunSteps() {
    int64_t next = 0;
    while (next < reader_.step_count() || !submitted_.empty()) {
      while (next < reader_.step_count() && submitted_.size() < kStepsOnTheirWay) {
        MT_RETURN_IF_ERROR(Submit(next));
        ++next;
      }
      MT_RETURN_IF_ERROR(Finish());
    }
    return absl::OkStatus();
  }

  absl::Status Submit(int64_t step) {
    if (observer_.StopRequested()) {
      return absl::CancelledError(absl::StrCat("the job was asked to stop before step ", step + 1));
    }
    MT_ASSIGN_OR_RETURN(StepBatch batch, reader_.Next());
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
    return pipeline_.SubmitStep(std::move(input));
  }

  // Waits for the oldest step and tells of it.
  absl::Status Finish() {
    MT_ASSIGN_OR_RETURN(const StepResult result, pipeline_.WaitStep());
    const SubmittedStep step = std::move(submitted_.front());
    submitted_.pop_front();
    const absl::Duration now = clock_.MonotonicNow();
    observer_.OnStep({.step = step.step + 1,
                      .loss = result.loss,
                      .gradient_norm = result.gradient_norm,
                      .learning_rate = step.learning_rate,
                      .token_count = step.batch.token_count,
                      .loss_token_count = step.batch.loss_token_count,
                      .duration = now - last_end_,
                      .skipped = !result.finite},
                     pipeline_.Figures());
    watchdog_.StepEnded(now - last_end_);
    last_end_ = now;
    skipped_in_a_row_ = result.finite ? 0 : skipped_in_a_row_ + 1;
    if (result.finite) {
      return absl::OkStatus();
    }
    const std::string line =
        absl::StrCat("step ", step.step + 1, " was skipped: ", Describe(result, step));
    observer_.OnLogLine(line);
    if (skipped_in_a_row_ >= job_.nonfinite_step_limit) {
      return absl::AbortedError(absl::StrCat(
          skipped_in_a_row_, " steps in a row were not finite (train.nonfinite_step_limit); ", line,
          "; lower the learning rate, or look at that row"));
    }
    return absl::OkStatus();
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
  LearningRateSchedule schedule_;
  const Clock& clock_;
  BatchReader& reader_;
  StepPipeline& pipeline_;
  TrainObserver& observer_;
  Watchdog& watchdog_;
  std::deque<SubmittedStep> submitted_;
  absl::Duration last_end_;
  int64_t skipped_in_a_row_ = 0;
};

}  // namespace

absl::Status RunTrainingLoop(const TrainJob& job, const Clock& clock, BatchReader& reader,
                             StepPipeline& pipeline, TrainObserver& observer, Watchdog& watchdog) {
  return TrainingLoop(job, clock, reader, pipeline, observer, watchdog).Run();
}

}  // namespace megatrain
