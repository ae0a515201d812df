#ifndef RUNTIME_BASE_CLOCK_H_
#define RUNTIME_BASE_CLOCK_H_

#include "absl/time/time.h"

namespace megatrain {

// The only source of time, so that every test can drive it. Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;

  // Since an arbitrary start; never goes back. For durations and deadlines.
  virtual absl::Duration MonotonicNow() const = 0;

  // For records that people read; can jump.
  virtual absl::Time WallNow() const = 0;
};

// The machine's clock.
class SystemClock final : public Clock {
 public:
  absl::Duration MonotonicNow() const override;
  absl::Time WallNow() const override;
};

}  // namespace megatrain

#endif  // RUNTIME_BASE_CLOCK_H_
