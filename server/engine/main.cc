// megatrain-engine: trains on this machine's processors.

#include "runtime/trainer/cpu_backend.h"
#include "server/engine/engine_main.h"

int main(int argc, char** argv) {
  return megatrain::EngineMain(argc, argv,
                               {{"cpu", [](const megatrain::BackendOptions& options) {
                                   return megatrain::MakeCpuBackend(options.compute_threads);
                                 }}});
}
