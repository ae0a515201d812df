// The gradient of a bias: the sum of its output's gradient over rows.

#ifndef RUNTIME_KERNELS_BIAS_H_
#define RUNTIME_KERNELS_BIAS_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "runtime/kernels/scratch_size.h"
#include "runtime/model/layer_template.h"

namespace megatrain {

struct BiasBackward {
  const void* y_gradient;  // [rows, row_stride] in `dtype`, 16-byte aligned
  int64_t rows;
  int64_t width;         // leading columns of each row
  int64_t row_stride;    // elements
  float* bias_gradient;  // [width], added to
  void* scratch;         // BiasBackwardScratchBytes
  ComputeDtype dtype;
};

absl::Status LaunchBiasBackward(const BiasBackward& arguments, cudaStream_t stream);

}  // namespace megatrain

#endif  // RUNTIME_KERNELS_BIAS_H_
