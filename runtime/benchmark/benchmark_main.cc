#include "runtime/benchmark/benchmark_main.h"

#include <iostream>
#include <string>

#include "CLI/CLI.hpp"
#include "runtime/base/clock.h"
#include "runtime/base/status_macros.h"
#include "runtime/benchmark/benchmark_run.h"

namespace megatrain {
namespace {

absl::Status Run(const BenchmarkFlags& flags, const BackendFactory& make_backend,
                 DeviceTracer* tracer) {
  SystemClock clock;
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<ComputeBackend> backend, make_backend(flags));
  return RunBenchmark(flags, {.backend = *backend, .tracer = tracer, .clock = clock}, std::cout);
}

}  // namespace

int BenchmarkMain(int argc, char** argv, const BackendFactory& make_backend, DeviceTracer* tracer) {
  BenchmarkFlags flags;
  CLI::App app("Measures training of a model's shape on random weights and tokens.");
  AddBenchmarkFlags(app, flags);
  CLI11_PARSE(app, argc, argv);
  for (int i = 0; i < argc; ++i) {
    flags.command += std::string(i == 0 ? "" : " ") + argv[i];
  }
  if (const absl::Status status = Run(flags, make_backend, tracer); !status.ok()) {
    std::cerr << status.ToString() << "\n";
    return 1;
  }
  return 0;
}

}  // namespace megatrain
