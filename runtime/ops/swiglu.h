#ifndef RUNTIME_OPS_SWIGLU_H_
#define RUNTIME_OPS_SWIGLU_H_

#include <ATen/core/Tensor.h>

namespace megatrain {

// Writes silu(gate) * up; `out_TF` may be `gate_TF`. All fp32 [T, F].
void SwigluForward(const at::Tensor& gate_TF, const at::Tensor& up_TF, const at::Tensor& out_TF);

// In: `gradient_TF` is d loss / d out. Out: `gradient_TF` is d loss / d gate and
// `up_gradient_TF` d loss / d up.
void SwigluBackward(const at::Tensor& gate_TF, const at::Tensor& up_TF,
                    const at::Tensor& gradient_TF, const at::Tensor& up_gradient_TF);

}  // namespace megatrain

#endif  // RUNTIME_OPS_SWIGLU_H_
