#ifndef RUNTIME_TRAINER_CUDA_BACKEND_H_
#define RUNTIME_TRAINER_CUDA_BACKEND_H_

#include <memory>

#include "absl/status/statusor.h"
#include "runtime/trainer/compute_backend.h"

namespace megatrain {

// Computes on the first GPU that this process sees. UNAVAILABLE when there is none or no driver.
absl::StatusOr<std::unique_ptr<ComputeBackend>> MakeCudaBackend();

}  // namespace megatrain

#endif  // RUNTIME_TRAINER_CUDA_BACKEND_H_
