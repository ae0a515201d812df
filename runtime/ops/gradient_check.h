// For tests alone: random tensors, and LibTorch's autograd in float64 as the reference.

#ifndef RUNTIME_OPS_GRADIENT_CHECK_H_
#define RUNTIME_OPS_GRADIENT_CHECK_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <random>
#include <vector>

namespace megatrain {

// Standard normal numbers as a tensor of float64 that are exact in `dtype`.
at::Tensor RandomNormal(at::IntArrayRef shape, c10::ScalarType dtype, std::mt19937& random);

// ||a - reference|| / ||reference|| in float64.
double RelativeError(const at::Tensor& a, const at::Tensor& reference);

// Whether every bit is the same.
bool SameBits(const at::Tensor& a, const at::Tensor& b);

// What a float64 function of tensors gives, and the gradients of sum(output * output_gradient).
struct Reference {
  at::Tensor output;
  std::vector<at::Tensor> gradients;  // one an input
};
Reference Differentiate(const std::function<at::Tensor(const std::vector<at::Tensor>&)>& function,
                        const std::vector<at::Tensor>& inputs, const at::Tensor& output_gradient);

}  // namespace megatrain

#endif  // RUNTIME_OPS_GRADIENT_CHECK_H_
