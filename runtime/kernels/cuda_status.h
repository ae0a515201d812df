// CUDA's errors as absl::Status.

#ifndef RUNTIME_KERNELS_CUDA_STATUS_H_
#define RUNTIME_KERNELS_CUDA_STATUS_H_

#include <cuda_runtime_api.h>

#include "absl/status/status.h"

namespace megatrain {

// OK, RESOURCE_EXHAUSTED when memory ran out, else INTERNAL. `what` names the call that failed.
absl::Status CudaStatus(cudaError_t error, const char* what);

// Of the kernel launched last on this thread. Launches are asynchronous: an error inside the
// kernel shows at a later call.
absl::Status CheckLaunch(const char* what);

}  // namespace megatrain

#endif  // RUNTIME_KERNELS_CUDA_STATUS_H_
