#include "runtime/trainer/job_progress.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace megatrain {
namespace {

constexpr absl::Duration kInterval = absl::Seconds(5);

}  // namespace

void JobProgress::Begin(TrainPhase phase) {
  watchdog_.SetPhase("");
  if (told_ != phase) {
    told_ = phase;
    observer_.OnPhase(phase);
  }
}

ByteProgress JobProgress::FollowWrite(TrainPhase phase, CheckpointFailure failure) {
  Start(phase, [&observer = observer_, failure](const std::string& what) {
    CheckpointFailure told = failure;
    told.status = absl::DeadlineExceededError(
        absl::StrCat(what,
                     ": the disk takes nothing; the state waits in memory, and goes on to the "
                     "disk as soon as that takes it"));
    observer.OnDiskWait(told);
  });
  return [this, phase](int64_t done_bytes, int64_t all_bytes) {
    Tell(phase, done_bytes, all_bytes);
    return absl::OkStatus();
  };
}

ByteProgress JobProgress::FollowUntilStop(TrainPhase phase) {
  Start(phase);
  return [this, phase](int64_t done_bytes, int64_t all_bytes) {
    Tell(phase, done_bytes, all_bytes);
    return observer_.StopRequested()
               ? absl::CancelledError("the job was asked to stop before its first step")
               : absl::OkStatus();
  };
}

void JobProgress::Start(TrainPhase phase, Watchdog::Told on_disk_wait) {
  watchdog_.SetPhase(std::string(TrainPhaseName(phase)), std::move(on_disk_wait));
  last_time_ = clock_.MonotonicNow();
}

void JobProgress::Tell(TrainPhase phase, int64_t done_bytes, int64_t all_bytes) {
  watchdog_.Beat();
  const absl::Duration now = clock_.MonotonicNow();
  if (now - last_time_ >= kInterval) {
    last_time_ = now;
    told_ = phase;
    observer_.OnPhaseProgress(phase, done_bytes, all_bytes);
  }
}

}  // namespace megatrain
