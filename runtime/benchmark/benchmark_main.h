#ifndef RUNTIME_BENCHMARK_BENCHMARK_MAIN_H_
#define RUNTIME_BENCHMARK_BENCHMARK_MAIN_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "runtime/benchmark/benchmark_flags.h"
#include "runtime/benchmark/device_tracer.h"
#include "runtime/trainer/compute_backend.h"

namespace megatrain {

using BackendFactory =
    std::function<absl::StatusOr<std::unique_ptr<ComputeBackend>>(const BenchmarkFlags&)>;

// The whole program on one backend; `tracer` may be null. Returns its exit status.
int BenchmarkMain(int argc, char** argv, const BackendFactory& make_backend, DeviceTracer* tracer);

}  // namespace megatrain

#endif  // RUNTIME_BENCHMARK_BENCHMARK_MAIN_H_
