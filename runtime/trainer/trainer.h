#ifndef RUNTIME_TRAINER_TRAINER_H_
#define RUNTIME_TRAINER_TRAINER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/clock.h"
#include "runtime/base/file_system.h"
#include "runtime/trainer/train_job.h"

namespace megatrain {

// The end of a job that succeeded.
struct TrainResult {
  int64_t step_count = 0;
  int64_t peak_host_bytes = 0;  // highest resident memory of the process during the job
};

// Runs jobs on the CPU backend, one at a time: loads the model into a host store, trains it by the
// streaming pipeline, exports it. Between jobs it holds nothing. One thread at a time.
class Trainer {
 public:
  struct Options {
    int compute_threads = 1;    // of the layer templates; equal results need an equal number
    int optimizer_threads = 1;  // results do not depend on it
  };

  // Refers to `files` and `clock`.
  Trainer(const Options& options, FileSystem& files, Clock& clock);

  // Runs a tiny model once, so that the libraries have started their threads and taken their
  // buffers, and keeps the process's resident memory of then as what every plan counts for them.
  absl::Status WarmUp();

  int64_t baseline_bytes() const { return baseline_bytes_; }

  // Returns when output_path is complete and durable. On an error nothing is left there:
  // INVALID_ARGUMENT or what reading gives for a model or data that are not as they must be,
  // RESOURCE_EXHAUSTED for a job that does not fit or a full disk, ABORTED after too many steps in
  // a row whose loss or gradient is not finite, CANCELLED when the observer asks to stop.
  absl::StatusOr<TrainResult> Run(const TrainJob& job, TrainObserver& observer);

 private:
  absl::StatusOr<TrainResult> RunJob(const TrainJob& job, TrainObserver& observer);

  const Options options_;
  FileSystem& files_;
  Clock& clock_;
  int64_t baseline_bytes_ = 0;
};

}  // namespace megatrain

#endif  // RUNTIME_TRAINER_TRAINER_H_
