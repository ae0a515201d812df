// Final norm, output matrix and cross entropy, for the rows with a loss alone and in chunks of
// rows, so that [T, V] logits never exist. Called within RunInWorkspace.

#ifndef RUNTIME_MODEL_HEAD_H_
#define RUNTIME_MODEL_HEAD_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "runtime/model/layer_template.h"

namespace megatrain {

struct HeadInputTensors {
  at::Tensor hidden_TD;  // compute dtype
  at::Tensor norm_D;     // compute dtype
  at::Tensor matrix_VD;  // compute dtype
  double norm_epsilon;
  std::span<const int32_t> loss_positions;  // ascending, below T
  std::span<const int32_t> loss_targets;    // below V
};

// Where the gradients of loss_scale * sum of losses go.
struct HeadGradientTensors {
  at::Tensor norm_D;     // fp32; added to
  at::Tensor matrix_VD;  // fp32; added to
  at::Tensor hidden_TD;  // compute dtype; all written, rounded once
  double loss_scale;
};

// The losses, and their gradients where `gradients` is not nullptr. The losses have the same bits
// with and without.
HeadResult RunHead(const HeadInputTensors& input, const HeadGradientTensors* gradients);

}  // namespace megatrain

#endif  // RUNTIME_MODEL_HEAD_H_
