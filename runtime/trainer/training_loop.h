#ifndef RUNTIME_TRAINER_TRAINING_LOOP_H_
#define RUNTIME_TRAINER_TRAINING_LOOP_H_

#include <string>

#include "absl/status/statusor.h"
#include "runtime/base/clock.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/data/batch_reader.h"
#include "runtime/pipeline/step_pipeline.h"
#include "runtime/trainer/job_evaluator.h"
#include "runtime/trainer/job_saver.h"
#include "runtime/trainer/train_job.h"
#include "runtime/trainer/watchdog.h"

namespace megatrain {

// What a training loop drives; all of it outlives the loop.
struct LoopParts {
  const Clock& clock;
  BatchReader& reader;  // at the step from which the loop goes on
  StepPipeline& pipeline;
  JobEvaluator& evaluator;
  JobSaver& saver;
  TrainObserver& observer;
  Watchdog& watchdog;  // learns how long steps take
};

struct LoopEnd {
  TrainingProgress progress;
  bool paused = false;          // as asked for: the state is saved
  std::string last_checkpoint;  // that this loop wrote, or found to have its state; empty: none
};

// Does the steps of the reader that `progress` has not done and tells the observer each one in
// order; between steps it evaluates and saves when that is due. Keeps one step ahead of the one
// whose result it waits for, so that no stream runs dry, but for what is due between two. When it
// returns OK, all updates are in the store. CANCELLED when the observer asks to stop, ABORTED after
// nonfinite_step_limit steps in a row that were skipped; else what reading, evaluating, saving or
// the pipeline gives.
absl::StatusOr<LoopEnd> RunTrainingLoop(const TrainJob& job, const LoopParts& parts,
                                        TrainingProgress progress);

}  // namespace megatrain

#endif  // RUNTIME_TRAINER_TRAINING_LOOP_H_
