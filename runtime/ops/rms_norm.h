#ifndef RUNTIME_OPS_RMS_NORM_H_
#define RUNTIME_OPS_RMS_NORM_H_

#include <ATen/core/Tensor.h>

namespace megatrain {

// x / sqrt(mean(x^2) + epsilon) times the weight. Writes `normed_TD` and returns the factors
// 1 / sqrt(...), [T, 1]. The weight is fp32 or bf16, all else fp32.
at::Tensor RmsNormForward(const at::Tensor& x_TD, const at::Tensor& weight_D, double epsilon,
                          const at::Tensor& normed_TD);

struct RmsNormGradient {
  const at::Tensor& x_TD;
  const at::Tensor& weight_D;            // fp32 or bf16, all else fp32
  const at::Tensor& inverse_rms_T1;      // what RmsNormForward returned
  const at::Tensor& normed_gradient_TD;  // d loss / d normed
  const at::Tensor& weight_gradient_D;   // added to
  const at::Tensor& x_gradient_TD;       // added to
};
void RmsNormBackward(const RmsNormGradient& gradient);

}  // namespace megatrain

#endif  // RUNTIME_OPS_RMS_NORM_H_
