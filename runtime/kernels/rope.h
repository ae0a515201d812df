// Rotary position embedding, half-split form: channel i of a head turns with channel i + C / 2.

#ifndef RUNTIME_KERNELS_ROPE_H_
#define RUNTIME_KERNELS_ROPE_H_

#include <cuda_runtime_api.h>
#include <vector_types.h>

#include <cstdint>

#include "absl/status/status.h"
#include "runtime/model/layer_template.h"

namespace megatrain {

// Turns the first `head_count` heads of each row in place; the rest of a row is left alone.
struct Rotation {
  void* heads;  // [tokens, row_stride] in `dtype`, 16-byte aligned
  int64_t tokens;
  int64_t row_stride;  // elements
  int head_count;
  int head_dim;              // C, even
  const float2* table;       // [positions, C / 2]: cosine and sine; 16-byte aligned
  const int32_t* positions;  // [tokens]: each token's row of the table
  ComputeDtype dtype;
};

absl::Status LaunchRotateForward(const Rotation& rotation, cudaStream_t stream);

// Turns gradients back: the inverse of a rotation is its transpose.
absl::Status LaunchRotateBackward(const Rotation& rotation, cudaStream_t stream);

}  // namespace megatrain

#endif  // RUNTIME_KERNELS_ROPE_H_
