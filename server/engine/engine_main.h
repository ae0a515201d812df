#ifndef SERVER_ENGINE_ENGINE_MAIN_H_
#define SERVER_ENGINE_ENGINE_MAIN_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/base/file_system.h"
#include "runtime/trainer/compute_backend.h"

namespace megatrain {

// What a backend is made with; `files` outlives it.
struct BackendOptions {
  int compute_threads;
  std::string machine_folder;  // keeps what is measured of this machine; empty: nothing is measured
  FileSystem& files;
};

// By the names that --backend takes.
using BackendFactories =
    std::map<std::string,
             std::function<absl::StatusOr<std::unique_ptr<ComputeBackend>>(const BackendOptions&)>>;

// The process that holds a model's training state and trains it, started and owned by megatraind.
// Returns its exit status.
int EngineMain(int argc, char** argv, const BackendFactories& factories);

}  // namespace megatrain

#endif  // SERVER_ENGINE_ENGINE_MAIN_H_
