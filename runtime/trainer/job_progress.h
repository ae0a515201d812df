#ifndef RUNTIME_TRAINER_JOB_PROGRESS_H_
#define RUNTIME_TRAINER_JOB_PROGRESS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "runtime/base/byte_progress.h"
#include "runtime/base/clock.h"
#include "runtime/trainer/train_job.h"
#include "runtime/trainer/watchdog.h"

namespace megatrain {

// Tells a job's observer what the job does: short phases as they begin, long ones only once they
// have taken a while, and then how far they are. Tells the watchdog of both. One thread at a time.
class JobProgress {
 public:
  // All outlive this.
  JobProgress(const Clock& clock, TrainObserver& observer, Watchdog& watchdog)
      : clock_(clock), observer_(observer), watchdog_(watchdog) {}

  // Tells of the phase, unless it was the last one told of. Long work that was followed is over.
  void Begin(TrainPhase phase);

  void Log(const std::string& line) { observer_.OnLogLine(line); }
  absl::Duration Now() const { return clock_.MonotonicNow(); }

  // For long work in the middle of a job: nothing is told before it has taken some seconds. The
  // first writes what is in memory alone: a disk that hangs is told of as a `failure`, which needs
  // no status, and waited for. The second ends the work with CANCELLED when the observer asks to
  // stop.
  ByteProgress FollowWrite(TrainPhase phase, CheckpointFailure failure);
  ByteProgress FollowUntilStop(TrainPhase phase);

 private:
  // Long work begins.
  void Start(TrainPhase phase, Watchdog::Told on_disk_wait = nullptr);
  void Tell(TrainPhase phase, int64_t done_bytes, int64_t all_bytes);

  const Clock& clock_;
  TrainObserver& observer_;
  Watchdog& watchdog_;
  std::optional<TrainPhase> told_;
  absl::Duration last_time_;  // when long work began, or was told of
};

}  // namespace megatrain

#endif  // RUNTIME_TRAINER_JOB_PROGRESS_H_
