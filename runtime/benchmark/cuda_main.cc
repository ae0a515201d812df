// benchmark_cuda: the speed of training on a GPU.

#include "runtime/base/posix_file_system.h"
#include "runtime/benchmark/benchmark_main.h"
#include "runtime/benchmark/kernel_time.h"
#include "runtime/trainer/cuda_backend.h"

int main(int argc, char** argv) {
  const std::unique_ptr<megatrain::DeviceTracer> tracer = megatrain::MakeCudaTracer();
  megatrain::PosixFileSystem files;
  return megatrain::BenchmarkMain(
      argc, argv,
      [&files](const megatrain::BenchmarkFlags& flags) {
        return megatrain::MakeCudaBackend(flags.matmul_choices, files);
      },
      tracer.get());
}
