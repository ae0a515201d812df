#ifndef RUNTIME_KERNELS_SPLIT_FLOAT_KERNEL_H_
#define RUNTIME_KERNELS_SPLIT_FLOAT_KERNEL_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"

namespace megatrain {

// weights[i] = hi[i] joined with lo[i] as in split_float.h. Device memory, `hi` and `weights`
// aligned to 16 bytes; `lo`, which may follow an odd number of elements, is slow when it is not.
absl::Status LaunchJoinFloats(const uint16_t* hi, const int16_t* lo, float* weights, int64_t count,
                              cudaStream_t stream);

}  // namespace megatrain

#endif  // RUNTIME_KERNELS_SPLIT_FLOAT_KERNEL_H_
