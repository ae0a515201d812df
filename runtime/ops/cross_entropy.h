#ifndef RUNTIME_OPS_CROSS_ENTROPY_H_
#define RUNTIME_OPS_CROSS_ENTROPY_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

namespace megatrain {

// losses[i] = -log softmax(logits[i])[targets[i]]. `logits_NV`, fp32 and contiguous, then holds
// exp(logit - the row's largest); returns each row's sum of those, fp32 [N, 1]. Targets are below
// V.
at::Tensor CrossEntropyForward(const at::Tensor& logits_NV, std::span<const int32_t> targets,
                               std::span<double> losses);

// From what CrossEntropyForward left in the logits' place to d (scale * sum of losses) / d logits,
// in place.
void CrossEntropyBackward(const at::Tensor& exponentials_NV, const at::Tensor& row_sum_N1,
                          std::span<const int32_t> targets, double scale);

}  // namespace megatrain

#endif  // RUNTIME_OPS_CROSS_ENTROPY_H_
