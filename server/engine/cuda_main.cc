// megatrain-engine-cuda: trains on a GPU, or on this machine's processors.

#include "runtime/trainer/cpu_backend.h"
#include "runtime/trainer/cuda_backend.h"
#include "server/engine/engine_main.h"

int main(int argc, char** argv) {
  return megatrain::EngineMain(
      argc, argv, {{"cpu", megatrain::MakeCpuBackend}, {"cuda", [](int /*compute_threads*/) {
                                                          return megatrain::MakeCudaBackend();
                                                        }}});
}
