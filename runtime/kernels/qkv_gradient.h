// What follows attention's backward pass, in one pass over memory: the rotation taken back, and the
// gradient of the bias of queries, keys and values.

#ifndef RUNTIME_KERNELS_QKV_GRADIENT_H_
#define RUNTIME_KERNELS_QKV_GRADIENT_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "runtime/kernels/rope.h"
#include "runtime/kernels/scratch_size.h"

namespace megatrain {

struct QkvGradient {
  Rotation rotation;     // as for LaunchRotateBackward
  int64_t head_count;    // all of a row: those that turn, then those that do not
  float* bias_gradient;  // [head_count head_dim], added to
  void* scratch;         // BiasBackwardScratchBytes
};

// Turns as LaunchRotateBackward does, with the same bits, and adds the sums over tokens, of what is
// not rounded yet, to `bias_gradient`.
absl::Status LaunchRotateBackwardAndSum(const QkvGradient& gradient, cudaStream_t stream);

}  // namespace megatrain

#endif  // RUNTIME_KERNELS_QKV_GRADIENT_H_
