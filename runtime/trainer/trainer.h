#ifndef RUNTIME_TRAINER_TRAINER_H_
#define RUNTIME_TRAINER_TRAINER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/clock.h"
#include "runtime/base/file_system.h"
#include "runtime/planner/machine_speeds.h"
#include "runtime/planner/planner.h"
#include "runtime/trainer/compute_backend.h"
#include "runtime/trainer/job_inputs.h"
#include "runtime/trainer/job_progress.h"
#include "runtime/trainer/job_saver.h"
#include "runtime/trainer/model_session.h"
#include "runtime/trainer/train_job.h"
#include "runtime/trainer/training_loop.h"
#include "runtime/trainer/watchdog.h"

namespace megatrain {

// The end of a job that succeeded.
struct TrainResult {
  int64_t step_count = 0;         // that were done, those before a resume too
  int64_t peak_host_bytes = 0;    // highest resident memory of the process during the job
  bool stopped_early = false;     // evaluations got no better
  std::string paused_checkpoint;  // not empty: stopped as asked, its state in that one; no export
};

// Runs jobs on one backend, one at a time: loads the model into a host store, trains it by the
// streaming pipeline, exports it. Between jobs it holds nothing. One thread at a time.
class Trainer {
 public:
  struct Parts {
    ComputeBackend& backend;
    FileSystem& files;
    Clock& clock;
    MachineSpeeds speeds = {};  // that placements are chosen by
  };

  // Results do not depend on the number of threads that the optimizer has.
  Trainer(const Parts& parts, int optimizer_threads);

  // Runs a tiny model once, so that the libraries have started their threads and taken their
  // buffers, and keeps the process's resident memory of then as what every plan counts for them.
  absl::Status WarmUp();

  int64_t baseline_bytes() const { return baseline_bytes_; }

  // Returns when output_path is complete and durable, or the job is paused. On an error nothing is
  // left there, and checkpoints that are complete stay: INVALID_ARGUMENT or what reading gives for
  // a model or data that are not as they must be, what MarkUnusableCheckpoint marks for a
  // checkpoint that is damaged or not to be read, FAILED_PRECONDITION for one of something else,
  // RESOURCE_EXHAUSTED for a job that does not fit or a full disk, ABORTED after too many steps in
  // a row whose loss or gradient is not finite, CANCELLED when the observer asks to stop.
  absl::StatusOr<TrainResult> Run(const TrainJob& job, TrainObserver& observer);

 private:
  absl::StatusOr<TrainResult> RunJob(const TrainJob& job, TrainObserver& observer);

  absl::StatusOr<Plan> PlanOf(const TrainJob& job, const JobInputs& inputs);
  // The model in memory, ready for its first step.
  absl::StatusOr<std::unique_ptr<ModelSession>> StartSession(const TrainJob& job,
                                                             const JobInputs& inputs,
                                                             const Plan& plan,
                                                             JobProgress& progress);
  absl::Status LoadState(const TrainJob& job, const JobInputs& inputs, ModelSession& session,
                         JobProgress& progress);
  absl::Status Announce(const TrainJob& job, const JobInputs& inputs, const Plan& plan,
                        TrainObserver& observer);

  // What goes on while the model is in memory.
  struct Running {
    const TrainJob& job;
    const JobInputs& inputs;
    const Plan& plan;
    ModelSession& session;
    JobProgress& progress;
    TrainObserver& observer;
    Watchdog& watchdog;
  };
  // To the end of the export, or to a pause.
  absl::StatusOr<LoopEnd> Train(const Running& running);
  // While the disk does not take it, holds; a job that is stopped then is paused by a checkpoint.
  absl::StatusOr<LoopEnd> Export(const Running& running, JobSaver& saver, LoopEnd end);
  absl::Status TryExport(const Running& running, int64_t step);

  const Parts parts_;
  const int optimizer_threads_;
  int64_t baseline_bytes_ = 0;
};

}  // namespace megatrain

#endif  // RUNTIME_TRAINER_TRAINER_H_
