#include "runtime/kernels/cuda_status.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace megatrain {

absl::Status CudaStatus(cudaError_t error, const char* what) {
  if (error == cudaSuccess) {
    return absl::OkStatus();
  }
  const std::string message =
      absl::StrCat(what, ": ", cudaGetErrorName(error), " (", cudaGetErrorString(error), ")");
  return error == cudaErrorMemoryAllocation ? absl::ResourceExhaustedError(message)
                                            : absl::InternalError(message);
}

absl::Status CheckLaunch(const char* what) { return CudaStatus(cudaGetLastError(), what); }

}  // namespace megatrain
