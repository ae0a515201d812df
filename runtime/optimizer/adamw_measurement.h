#ifndef RUNTIME_OPTIMIZER_ADAMW_MEASUREMENT_H_
#define RUNTIME_OPTIMIZER_ADAMW_MEASUREMENT_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/clock.h"
#include "runtime/config/model_layout.h"
#include "runtime/hoststore/host_store.h"

namespace megatrain {

// The speed of UpdateUnit on one matrix of normal values: zeros would run faster than any step.
class AdamWMeasurement {
 public:
  struct Options {
    int64_t element_count;  // a multiple of 2^20
    int gradient_bytes;     // 4 or 2
    int fill_threads;
  };
  static absl::StatusOr<std::unique_ptr<AdamWMeasurement>> Create(Options options);

  struct Rate {
    double parameters_per_second;
    double bytes_per_second;  // weights and moments read and written, gradients read
  };
  // Updates the whole again and again, for that long at least.
  Rate Measure(int threads, absl::Duration at_least);

 private:
  AdamWMeasurement(Options options, ModelLayout layout, std::unique_ptr<HostStore> store);

  const Options options_;
  const ModelLayout layout_;
  const std::unique_ptr<HostStore> store_;
  SystemClock clock_;
  int64_t step_ = 0;
};

}  // namespace megatrain

#endif  // RUNTIME_OPTIMIZER_ADAMW_MEASUREMENT_H_
