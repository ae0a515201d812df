#ifndef RUNTIME_TRAINER_JOB_SAVER_H_
#define RUNTIME_TRAINER_JOB_SAVER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/clock.h"
#include "runtime/base/file_system.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/training_log.h"
#include "runtime/checkpoint/write_checkpoint.h"
#include "runtime/trainer/job_progress.h"
#include "runtime/trainer/model_session.h"
#include "runtime/trainer/train_job.h"

namespace megatrain {

// Writes one job's checkpoints between its steps. One thread at a time.
class JobSaver {
 public:
  struct Parts {
    FileSystem& files;
    const Clock& clock;
    ModelSession& session;
    JobProgress& progress;
    TrainObserver& observer;
  };

  // `form` is what of a manifest stays the same through the job; its progress is where it starts,
  // and `log` what was told up to there.
  JobSaver(const Parts& parts, const SaveOptions& options, CheckpointManifest form,
           TrainingLog log);

  // Whether `step` steps being done is a time for one by the job's own wish.
  bool Due(int64_t step) const;

  // Saves after the steps that `progress` counts, of which every result is known; training may go
  // on afterwards. `due` is when it was due. A state that the newest checkpoint has already is not
  // written again: the observer is told of that one. While the disk does not take it, holds, and
  // asks the observer again and again. The request it was saved for in the end, whose then_stop is
  // true when any one asked for it; CANCELLED when the observer gives up; else an error of the
  // pipeline.
  absl::StatusOr<SaveRequest> Save(const TrainingProgress& progress, SaveRequest request,
                                   absl::Duration due);

  // The state waits in memory since something could not be written: what is asked for next.
  // CANCELLED when the observer gives up.
  absl::StatusOr<SaveRequest> Hold(const CheckpointFailure& failure);

  // Keeps what the observer was told of, for the next checkpoints.
  void Keep(const LogEntry& entry) { AddToLog(entry, log_); }

  // Steps of the newest checkpoint of this job, or of the one that it goes on from.
  int64_t saved_step() const { return saved_step_; }
  // Of the newest one that was told of; empty: none was.
  const std::string& last_id() const { return last_id_; }

 private:
  absl::Status TrySave(const TrainingProgress& progress, const SaveRequest& request,
                       absl::Duration due);
  // Whether the newest checkpoint has that state, and is still there.
  bool IsSaved(const TrainingProgress& progress) const;
  void TellOfSaved(CheckpointTrigger trigger, absl::Duration start, absl::Duration due);
  void Report(const WrittenCheckpoint& written, CheckpointReport report);

  const Parts parts_;
  const SaveOptions options_;
  CheckpointManifest form_;
  TrainingLog log_;
  int64_t saved_step_;
  absl::Duration saved_time_;
  std::string last_id_;
  double disk_bytes_per_second_ = 0;  // of the save before
  absl::Status pipeline_error_;
};

}  // namespace megatrain

#endif  // RUNTIME_TRAINER_JOB_SAVER_H_
