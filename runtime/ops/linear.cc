#include "runtime/ops/linear.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include "runtime/ops/tensor_view.h"

namespace megatrain {

void LinearForward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& y) {
  at::mm_out(const_cast<at::Tensor&>(y), x, weight.t());
}

void LinearForward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                   const at::Tensor& y) {
  at::addmm_out(const_cast<at::Tensor&>(y), bias, x, weight.t());
}

void LinearForwardResidual(const at::Tensor& x, const at::Tensor& weight,
                           const at::Tensor& residual, const at::Tensor& y) {
  at::addmm_out(const_cast<at::Tensor&>(y), residual, x, weight.t());
}

void LinearBackwardInput(const at::Tensor& y_gradient, const at::Tensor& weight,
                         const at::Tensor& x_gradient) {
  at::mm_out(const_cast<at::Tensor&>(x_gradient), y_gradient, weight);
}

void LinearBackwardInputAdd(const at::Tensor& y_gradient, const at::Tensor& weight,
                            const at::Tensor& x_gradient) {
  x_gradient.addmm_(y_gradient, weight);
}

void LinearBackwardWeight(const at::Tensor& y_gradient, const at::Tensor& x,
                          const at::Tensor& weight_gradient) {
  weight_gradient.addmm_(AsFloat(y_gradient).t(), AsFloat(x));
}

void BiasBackward(const at::Tensor& y_gradient, const at::Tensor& bias_gradient) {
  bias_gradient.add_(y_gradient.sum(0, /*keepdim=*/false, at::kFloat));
}

}  // namespace megatrain
