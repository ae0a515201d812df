// y = x W^T + b for weights [out, in], and its gradients.

#ifndef RUNTIME_OPS_LINEAR_H_
#define RUNTIME_OPS_LINEAR_H_

#include <ATen/core/Tensor.h>

namespace megatrain {

// Writes y [T, out]. All of one dtype, fp32 or bf16 (with fp32 sums).
void LinearForward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& y);

// With a bias [out].
void LinearForward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                   const at::Tensor& y);

// y = residual + x W^T, [T, out], summed before the one rounding to bf16.
void LinearForwardResidual(const at::Tensor& x, const at::Tensor& weight,
                           const at::Tensor& residual, const at::Tensor& y);

// Writes d loss / d x = dy W.
void LinearBackwardInput(const at::Tensor& y_gradient, const at::Tensor& weight,
                         const at::Tensor& x_gradient);

// Adds dy W to `x_gradient`.
void LinearBackwardInputAdd(const at::Tensor& y_gradient, const at::Tensor& weight,
                            const at::Tensor& x_gradient);

// Adds dy^T x to `weight_gradient`, fp32 [out, in], with fp32 sums of the exact products also for
// bf16 operands. The operands may differ in dtype.
void LinearBackwardWeight(const at::Tensor& y_gradient, const at::Tensor& x,
                          const at::Tensor& weight_gradient);

// Adds the sum of dy's rows to `bias_gradient`, fp32 [out].
void BiasBackward(const at::Tensor& y_gradient, const at::Tensor& bias_gradient);

}  // namespace megatrain

#endif  // RUNTIME_OPS_LINEAR_H_
