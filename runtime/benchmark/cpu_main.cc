// benchmark: the speed of training on this machine's processors.

#include "runtime/base/allowed_processors.h"
#include "runtime/benchmark/benchmark_main.h"
#include "runtime/trainer/cpu_backend.h"

int main(int argc, char** argv) {
  const auto make_backend = [](const megatrain::BenchmarkFlags& flags)
      -> absl::StatusOr<std::unique_ptr<megatrain::ComputeBackend>> {
    return megatrain::MakeCpuBackend(flags.threads > 0 ? flags.threads
                                                       : megatrain::AllowedProcessors());
  };
  return megatrain::BenchmarkMain(argc, argv, make_backend, /*tracer=*/nullptr);
}
