// From flags to what is run: shape, placement and names. Pure but for reading the machine.

#ifndef RUNTIME_BENCHMARK_BENCHMARK_SETUP_H_
#define RUNTIME_BENCHMARK_BENCHMARK_SETUP_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "runtime/benchmark/benchmark_flags.h"
#include "runtime/benchmark/result_line.h"
#include "runtime/config/model_config.h"
#include "runtime/planner/backend_memory.h"
#include "runtime/planner/placement.h"

namespace megatrain {

struct BenchmarkSetup {
  ModelConfig config;
  ComputeSetting compute;
  StepRows step;
  Placement placement;
  BenchmarkSetting setting;  // without machine and backend's name
};

// `device_bytes` is what the pipeline may take. INVALID_ARGUMENT for flags that do not go together,
// RESOURCE_EXHAUSTED when no placement fits.
absl::StatusOr<BenchmarkSetup> SetUpBenchmark(const BenchmarkFlags& flags, Backend backend,
                                              int64_t device_bytes);

}  // namespace megatrain

#endif  // RUNTIME_BENCHMARK_BENCHMARK_SETUP_H_
