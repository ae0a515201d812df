#ifndef RUNTIME_TRAINER_TRAINING_LOOP_H_
#define RUNTIME_TRAINER_TRAINING_LOOP_H_

#include "absl/status/status.h"
#include "runtime/base/clock.h"
#include "runtime/data/batch_reader.h"
#include "runtime/pipeline/step_pipeline.h"
#include "runtime/trainer/train_job.h"
#include "runtime/trainer/watchdog.h"

namespace megatrain {

// Does all steps of `reader` and tells `observer` each one in order; when it returns OK, all
// updates are in the store. Keeps one step ahead of the one whose result it waits for, so that no
// stream runs dry between steps. CANCELLED when the observer asks to stop, ABORTED after
// nonfinite_step_limit steps in a row that were skipped; else what reading or the pipeline gives.
// The watchdog learns how long steps take.
absl::Status RunTrainingLoop(const TrainJob& job, const Clock& clock, BatchReader& reader,
                             StepPipeline& pipeline, TrainObserver& observer, Watchdog& watchdog);

}  // namespace megatrain

#endif  // RUNTIME_TRAINER_TRAINING_LOOP_H_
