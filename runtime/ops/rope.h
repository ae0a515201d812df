// Rotary position embedding, half-split form: channel i of a head turns with channel i + C / 2.

#ifndef RUNTIME_OPS_ROPE_H_
#define RUNTIME_OPS_ROPE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/config/model_config.h"

namespace megatrain {

// Radians per position of each of the head_dim / 2 channel pairs, with the operations of
// transformers' modeling_rope_utils in fp32, so that the bits agree. `rope.kind` is default,
// linear or llama3.
std::vector<float> InverseFrequencies(const RopeConfig& rope, int64_t head_dim);

// cos and sin of the angles of one micro-batch's tokens, fp32 [T, 1, R].
struct RopeTable {
  at::Tensor cos_T1R;
  at::Tensor sin_T1R;
};
RopeTable MakeRopeTable(std::span<const int32_t> positions, std::span<const float> frequencies);

// Turns the heads of x by the angles, in place. fp32 [T, heads, C].
void RotateForward(const RopeTable& table, const at::Tensor& x_THC);

// Turns gradients back: the inverse of a rotation is its transpose.
void RotateBackward(const RopeTable& table, const at::Tensor& gradient_THC);

}  // namespace megatrain

#endif  // RUNTIME_OPS_ROPE_H_
