#ifndef RUNTIME_BENCHMARK_KERNEL_TIME_H_
#define RUNTIME_BENCHMARK_KERNEL_TIME_H_

#include <memory>

#include "runtime/benchmark/device_tracer.h"

namespace megatrain {

// Kernels and copies of this process's GPUs, as CUPTI's activity interface tells of them. One at a
// time in a process.
std::unique_ptr<DeviceTracer> MakeCudaTracer();

}  // namespace megatrain

#endif  // RUNTIME_BENCHMARK_KERNEL_TIME_H_
