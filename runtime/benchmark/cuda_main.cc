// benchmark_cuda: the speed of training on a GPU.

#include "runtime/benchmark/benchmark_main.h"
#include "runtime/benchmark/kernel_time.h"
#include "runtime/trainer/cuda_backend.h"

int main(int argc, char** argv) {
  const std::unique_ptr<megatrain::DeviceTracer> tracer = megatrain::MakeCudaTracer();
  return megatrain::BenchmarkMain(
      argc, argv, [](const megatrain::BenchmarkFlags&) { return megatrain::MakeCudaBackend(); },
      tracer.get());
}
