#ifndef SERVER_ENGINE_ENGINE_MAIN_H_
#define SERVER_ENGINE_ENGINE_MAIN_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/trainer/compute_backend.h"

namespace megatrain {

// By the names that --backend takes; each makes its backend with so many compute threads.
using BackendFactories =
    std::map<std::string, std::function<absl::StatusOr<std::unique_ptr<ComputeBackend>>(int)>>;

// The process that holds a model's training state and trains it, started and owned by megatraind.
// Returns its exit status.
int EngineMain(int argc, char** argv, const BackendFactories& factories);

}  // namespace megatrain

#endif  // SERVER_ENGINE_ENGINE_MAIN_H_
