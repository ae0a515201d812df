#ifndef RUNTIME_KERNELS_ADAMW_KERNEL_H_
#define RUNTIME_KERNELS_ADAMW_KERNEL_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "runtime/optimizer/adamw_step.h"

namespace megatrain {

// `count` consecutive elements in device memory, every array aligned to 16 bytes; none overlap.
struct AdamWArrays {
  uint16_t* hi;
  int16_t* lo;
  float* moment1;
  float* moment2;
  const float* gradient;
  int64_t count;
};

// The update of adamw.h with the same bits, also of subnormal values. With `rounds_gradient` the
// gradient is first rounded to the nearest bf16, ties to even, as one that is kept in bf16 is.
// Bound by memory: 28 bytes an element.
absl::Status LaunchAdamW(const AdamWArrays& arrays, const AdamWCoefficients& coefficients,
                         bool rounds_gradient, cudaStream_t stream);

}  // namespace megatrain

#endif  // RUNTIME_KERNELS_ADAMW_KERNEL_H_
