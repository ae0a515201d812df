#include "runtime/ops/swiglu.h"

#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>

namespace megatrain {

void SwigluForward(const at::Tensor& gate_TF, const at::Tensor& up_TF, const at::Tensor& out_TF) {
  at::silu_out(const_cast<at::Tensor&>(out_TF), gate_TF);
  out_TF.mul_(up_TF);
}

void SwigluBackward(const at::Tensor& gate_TF, const at::Tensor& up_TF,
                    const at::Tensor& gradient_TF, const at::Tensor& up_gradient_TF) {
  at::silu_out(const_cast<at::Tensor&>(up_gradient_TF), gate_TF);
  up_gradient_TF.mul_(gradient_TF);
  gradient_TF.mul_(up_TF);
  at::silu_backward_out(const_cast<at::Tensor&>(gradient_TF), gradient_TF, gate_TF);
}

}  // namespace megatrain
