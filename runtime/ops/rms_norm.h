#ifndef RUNTIME_OPS_RMS_NORM_H_
#define RUNTIME_OPS_RMS_NORM_H_

#include <ATen/core/Tensor.h>

namespace megatrain {

// x / sqrt(mean(x^2) + epsilon) in fp32, rounded to x's dtype and then multiplied by the weight, as
// Llama does it. Writes `normed_TD` and returns the factors 1 / sqrt(...), fp32 [T, 1]. x, weight
// and normed have one dtype, fp32 or bf16.
at::Tensor RmsNormForward(const at::Tensor& x_TD, const at::Tensor& weight_D, double epsilon,
                          const at::Tensor& normed_TD);

struct RmsNormGradient {
  const at::Tensor& x_TD;
  const at::Tensor& weight_D;
  const at::Tensor& inverse_rms_T1;      // what RmsNormForward returned
  const at::Tensor& normed_gradient_TD;  // d loss / d normed
  const at::Tensor& weight_gradient_D;   // fp32; added to
  const at::Tensor& x_gradient_TD;       // x's dtype; added to
};
void RmsNormBackward(const RmsNormGradient& gradient);

}  // namespace megatrain

#endif  // RUNTIME_OPS_RMS_NORM_H_
