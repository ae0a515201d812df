// y = x W^T for weights [out, in], and its gradients, in fp32.
//
// Weights are fp32 or bf16, all else fp32. A bf16 weight is widened in blocks of
// kWeightBlockElements, so that neither accuracy nor bits hang on whether the processor multiplies
// bf16.

#ifndef RUNTIME_OPS_LINEAR_H_
#define RUNTIME_OPS_LINEAR_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace megatrain {

// Of a bf16 weight, this many elements at most lie in memory as fp32 at a time (or one row).
inline constexpr int64_t kWeightBlockElements = 1 << 20;

// Writes y [T, out].
void LinearForward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& y);

// y = x W^T + addend: a bias [out] of either dtype, or a residual [T, out].
void LinearForward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& addend,
                   const at::Tensor& y);

// Writes d loss / d x = dy W.
void LinearBackwardInput(const at::Tensor& y_gradient, const at::Tensor& weight,
                         const at::Tensor& x_gradient);

// Adds dy W to `x_gradient`.
void LinearBackwardInputAdd(const at::Tensor& y_gradient, const at::Tensor& weight,
                            const at::Tensor& x_gradient);

// Adds dy^T x to `weight_gradient` [out, in].
void LinearBackwardWeight(const at::Tensor& y_gradient, const at::Tensor& x,
                          const at::Tensor& weight_gradient);

// Adds the sum of dy's rows to `bias_gradient` [out].
void BiasBackward(const at::Tensor& y_gradient, const at::Tensor& bias_gradient);

}  // namespace megatrain

#endif  // RUNTIME_OPS_LINEAR_H_
