// megatrain-engine-cuda: trains on a GPU, or on this machine's processors.

#include <string>

#include "runtime/trainer/cpu_backend.h"
#include "runtime/trainer/cuda_backend.h"
#include "server/engine/engine_main.h"

int main(int argc, char** argv) {
  using megatrain::BackendOptions;
  const auto cpu = [](const BackendOptions& options) {
    return megatrain::MakeCpuBackend(options.compute_threads);
  };
  const auto cuda = [](const BackendOptions& options) {
    const std::string& folder = options.machine_folder;
    return megatrain::MakeCudaBackend(folder.empty() ? "" : folder + "/matmul_choices.json",
                                      options.files);
  };
  return megatrain::EngineMain(argc, argv, {{"cpu", cpu}, {"cuda", cuda}});
}
