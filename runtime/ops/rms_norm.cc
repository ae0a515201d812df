#include "runtime/ops/rms_norm.h"

#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/mv.h>

#include "runtime/ops/tensor_view.h"

namespace megatrain {

at::Tensor RmsNormForward(const at::Tensor& x_TD, const at::Tensor& weight_D, double epsilon,
                          const at::Tensor& normed_TD) {
  at::Tensor factor_T1 = at::linalg_vector_norm(x_TD, 2, at::IntArrayRef{1}, /*keepdim=*/true);
  factor_T1.square_().div_(static_cast<double>(x_TD.size(1))).add_(epsilon).rsqrt_();
  at::mul_out(const_cast<at::Tensor&>(normed_TD), x_TD, factor_T1);
  normed_TD.mul_(AsFloat(weight_D));
  return factor_T1;
}

// With r = inverse rms, n = r x and g = d loss / d normed:
// dw = sum over rows of g n; dx = r (g w - n mean(g w n)).
void RmsNormBackward(const RmsNormGradient& gradient) {
  const at::Tensor& r_T1 = gradient.inverse_rms_T1;
  const at::Tensor& g_TD = gradient.normed_gradient_TD;
  const at::Tensor w_D = AsFloat(gradient.weight_D);
  const at::Tensor n_TD = at::mul(gradient.x_TD, r_T1);
  at::Tensor work_TD = at::mul(g_TD, n_TD);
  gradient.weight_gradient_D.add_(work_TD.sum(0));
  const at::Tensor mean_T1 =
      at::mv(work_TD, w_D).div_(static_cast<double>(w_D.size(0))).unsqueeze(1);
  at::mul_out(work_TD, g_TD, w_D);
  work_TD.addcmul_(n_TD, mean_T1, -1);
  gradient.x_gradient_TD.addcmul_(work_TD, r_T1);
}

}  // namespace megatrain
