// From flags to what is run: shape, placement and names. Pure but for reading the machine.

#ifndef RUNTIME_BENCHMARK_BENCHMARK_SETUP_H_
#define RUNTIME_BENCHMARK_BENCHMARK_SETUP_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "runtime/benchmark/benchmark_flags.h"
#include "runtime/benchmark/result_line.h"
#include "runtime/config/model_config.h"
#include "runtime/config/model_layout.h"
#include "runtime/planner/backend_memory.h"
#include "runtime/planner/machine.h"
#include "runtime/planner/machine_speeds.h"
#include "runtime/planner/placement.h"

namespace megatrain {

struct BenchmarkSetup {
  ModelConfig config;
  ComputeSetting compute;
  StepRows step;
  ModelLayout layout;       // of groups of layers_per_unit
  int layers_per_unit = 1;  // layers from one kept boundary to the next
  int fold_layers = 0;      // units of layers that have host memory; 0: all
  Placement placement;
  int64_t planned_host_bytes = 0;  // of store, stash and slabs; the process has more
  BenchmarkSetting setting;        // without machine and backend's name
};

// What a placement may take, and what it is predicted for.
struct BenchmarkMachine {
  Backend backend = Backend::kCpu;
  int64_t device_bytes = 0;  // that the pipeline may take
  int64_t host_bytes = 0;    // that store and pipeline may take
  MachineSpeeds speeds;
};

// INVALID_ARGUMENT for flags that do not go together,
// RESOURCE_EXHAUSTED when no placement fits.
absl::StatusOr<BenchmarkSetup> SetUpBenchmark(const BenchmarkFlags& flags,
                                              const BenchmarkMachine& machine);

}  // namespace megatrain

#endif  // RUNTIME_BENCHMARK_BENCHMARK_SETUP_H_
