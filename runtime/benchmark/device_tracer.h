#ifndef RUNTIME_BENCHMARK_DEVICE_TRACER_H_
#define RUNTIME_BENCHMARK_DEVICE_TRACER_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/benchmark/timeline.h"

namespace megatrain {

// Records what runs on a device between Start and Stop, both of them called while it is idle.
// Recording costs time: steps that are timed run without it.
class DeviceTracer {
 public:
  virtual ~DeviceTracer() = default;

  virtual absl::Status Start() = 0;

  // In the order of their ends, more or less.
  virtual absl::StatusOr<std::vector<DeviceActivity>> Stop() = 0;
};

}  // namespace megatrain

#endif  // RUNTIME_BENCHMARK_DEVICE_TRACER_H_
