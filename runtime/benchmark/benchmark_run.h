#ifndef RUNTIME_BENCHMARK_BENCHMARK_RUN_H_
#define RUNTIME_BENCHMARK_BENCHMARK_RUN_H_

#include <ostream>

#include "absl/status/status.h"
#include "runtime/base/clock.h"
#include "runtime/benchmark/benchmark_flags.h"
#include "runtime/benchmark/device_tracer.h"
#include "runtime/trainer/compute_backend.h"

namespace megatrain {

// What a run is made on. `tracer` is null where nothing can be traced.
struct BenchmarkParts {
  ComputeBackend& backend;
  DeviceTracer* tracer;
  Clock& clock;
};

// Trains random tokens on random weights: steps to warm up, steps that are timed from an idle
// pipeline to the end of all their updates, steps that are traced. Says on `text` what came of it
// and writes the files that the flags name. INVALID_ARGUMENT for flags that do not go together,
// RESOURCE_EXHAUSTED when no placement fits.
absl::Status RunBenchmark(const BenchmarkFlags& flags, const BenchmarkParts& parts,
                          std::ostream& text);

}  // namespace megatrain

#endif  // RUNTIME_BENCHMARK_BENCHMARK_RUN_H_
