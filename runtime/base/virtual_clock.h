#ifndef RUNTIME_BASE_VIRTUAL_CLOCK_H_
#define RUNTIME_BASE_VIRTUAL_CLOCK_H_

#include "absl/time/time.h"
#include "runtime/base/clock.h"
#include "runtime/base/mutex.h"

namespace megatrain {

// A clock that stands still until a test moves it. Thread-safe.
class VirtualClock final : public Clock {
 public:
  absl::Duration MonotonicNow() const override {
    MutexLock lock(&mutex_);
    return since_start_;
  }
  absl::Time WallNow() const override {
    MutexLock lock(&mutex_);
    return wall_;
  }

  // Time passes: both clocks go on by `duration`, which is not negative.
  void Advance(absl::Duration duration) {
    MutexLock lock(&mutex_);
    since_start_ += duration;
    wall_ += duration;
  }

  // Somebody sets the wall clock; the monotonic one does not notice.
  void JumpWall(absl::Time time) {
    MutexLock lock(&mutex_);
    wall_ = time;
  }

 private:
  mutable Mutex mutex_;
  absl::Duration since_start_ ABSL_GUARDED_BY(mutex_);
  absl::Time wall_ ABSL_GUARDED_BY(mutex_) = absl::FromUnixSeconds(1'700'000'000);
};

}  // namespace megatrain

#endif  // RUNTIME_BASE_VIRTUAL_CLOCK_H_
