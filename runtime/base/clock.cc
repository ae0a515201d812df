#include "runtime/base/clock.h"

#include <time.h>

#include "absl/time/clock.h"

namespace megatrain {

absl::Duration SystemClock::MonotonicNow() const {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return absl::DurationFromTimespec(now);
}

absl::Time SystemClock::WallNow() const { return absl::Now(); }

}  // namespace megatrain
