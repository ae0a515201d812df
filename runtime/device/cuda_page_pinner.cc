#include "runtime/device/cuda_page_pinner.h"

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/hoststore/locked_memory_limit.h"

namespace megatrain {

absl::Status CudaPagePinner::Pin(void* data, int64_t size_bytes) {
  const cudaError_t error = cudaHostRegister(data, size_bytes, cudaHostRegisterPortable);
  if (error == cudaSuccess) {
    return absl::OkStatus();
  }
  cudaGetLastError();  // else the next CUDA call, whoever makes it, would report this
  return absl::ResourceExhaustedError(
      absl::StrCat("pinning ", size_bytes, " bytes of host memory: ", cudaGetErrorString(error),
                   "; RLIMIT_MEMLOCK: ", LockedMemoryLimit()));
}

void CudaPagePinner::Unpin(void* data) {
  if (cudaHostUnregister(data) != cudaSuccess) {
    cudaGetLastError();  // the process is about to give the memory back in any case
  }
}

}  // namespace megatrain
