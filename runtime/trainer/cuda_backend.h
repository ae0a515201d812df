#ifndef RUNTIME_TRAINER_CUDA_BACKEND_H_
#define RUNTIME_TRAINER_CUDA_BACKEND_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/base/file_system.h"
#include "runtime/trainer/compute_backend.h"

namespace megatrain {

// Computes on the first GPU that this process sees. UNAVAILABLE when there is none or no driver.
//
// `matmul_choices_path` names the file of MatmulChoicesFile: MakeTemplates measures the products
// that it lacks, some seconds for a model and size of micro-batches, and adds them. Bits repeat as
// long as the file stays. Empty: every product takes its library's first choice. `files` outlives
// the backend.
absl::StatusOr<std::unique_ptr<ComputeBackend>> MakeCudaBackend(std::string matmul_choices_path,
                                                                FileSystem& files);

}  // namespace megatrain

#endif  // RUNTIME_TRAINER_CUDA_BACKEND_H_
