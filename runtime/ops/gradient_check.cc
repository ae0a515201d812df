#include "runtime/ops/gradient_check.h"

#include <ATen/ops/empty.h>

#include <cstring>

namespace megatrain {

at::Tensor RandomNormal(at::IntArrayRef shape, c10::ScalarType dtype, std::mt19937& random) {
  at::Tensor tensor = at::empty(shape, at::kDouble);
  std::normal_distribution<double> normal;
  auto* values = tensor.mutable_data_ptr<double>();
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    values[i] = normal(random);
  }
  return tensor.to(dtype).to(at::kDouble);
}

double RelativeError(const at::Tensor& a, const at::Tensor& reference) {
  const at::Tensor b = reference.to(at::kDouble);
  return a.to(at::kDouble).sub(b).norm().item().toDouble() / b.norm().item().toDouble();
}

bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.contiguous();
  const at::Tensor y = b.contiguous();
  return x.sizes() == y.sizes() && x.scalar_type() == y.scalar_type() &&
         std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

Reference Differentiate(const std::function<at::Tensor(const std::vector<at::Tensor>&)>& function,
                        const std::vector<at::Tensor>& inputs, const at::Tensor& output_gradient) {
  std::vector<at::Tensor> leaves;
  leaves.reserve(inputs.size());
  for (const at::Tensor& input : inputs) {
    leaves.push_back(input.detach().clone().requires_grad_(true));
  }
  const at::Tensor output = function(leaves);
  output.backward(output_gradient);
  Reference reference = {.output = output.detach(), .gradients = {}};
  for (const at::Tensor& leaf : leaves) {
    reference.gradients.push_back(leaf.grad());
  }
  return reference;
}

}  // namespace megatrain
