#ifndef RUNTIME_KERNELS_CLEAR_H_
#define RUNTIME_KERNELS_CLEAR_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "runtime/kernels/cuda_status.h"

namespace megatrain {

// Zeros device memory, in the stream's order.
inline absl::Status ClearBytes(void* data, int64_t size_bytes, cudaStream_t stream) {
  return CudaStatus(cudaMemsetAsync(data, 0, static_cast<size_t>(size_bytes), stream),
                    "cudaMemsetAsync");
}

inline absl::Status ClearFloats(float* data, int64_t count, cudaStream_t stream) {
  return ClearBytes(data, count * static_cast<int64_t>(sizeof(float)), stream);
}

}  // namespace megatrain

#endif  // RUNTIME_KERNELS_CLEAR_H_
