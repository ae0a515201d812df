#include "runtime/ops/linear.h"

#include <ATen/ops/mm.h>

#include <algorithm>

#include "runtime/ops/tensor_view.h"

namespace megatrain {
namespace {

// Calls body(first row, rows as fp32) for all rows of the weight, in order.
template <typename Body>
void ForEachBlock(const at::Tensor& weight, Body body) {
  const int64_t rows = weight.size(0);
  const int64_t step = weight.scalar_type() == at::kFloat
                           ? rows
                           : std::max<int64_t>(kWeightBlockElements / weight.size(1), 1);
  for (int64_t first = 0; first < rows; first += step) {
    body(first, AsFloat(weight.narrow(0, first, std::min(step, rows - first))));
  }
}

// Where fp32 sums for `result` go: itself, or a new tensor that Store rounds into it.
at::Tensor Sums(const at::Tensor& result) {
  return result.scalar_type() == at::kFloat ? result : Uninitialized(result.sizes(), at::kFloat);
}

void Store(const at::Tensor& sums, const at::Tensor& result) {
  if (!sums.is_same(result)) {
    result.copy_(sums);
  }
}

void Multiply(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& sums) {
  const at::Tensor wide_x = AsFloat(x);
  ForEachBlock(weight, [&](int64_t first, const at::Tensor& block) {
    at::Tensor columns = sums.narrow(1, first, block.size(0));
    at::mm_out(columns, wide_x, block.t());
  });
}

}  // namespace

void LinearForward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& y) {
  const at::Tensor sums = Sums(y);
  Multiply(x, weight, sums);
  Store(sums, y);
}

void LinearForward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& addend,
                   const at::Tensor& y) {
  const at::Tensor sums = Sums(y);
  Multiply(x, weight, sums);
  sums.add_(addend);
  Store(sums, y);
}

void LinearBackwardInput(const at::Tensor& y_gradient, const at::Tensor& weight,
                         const at::Tensor& x_gradient) {
  const at::Tensor wide_gradient = AsFloat(y_gradient);
  at::Tensor sums = Sums(x_gradient);
  ForEachBlock(weight, [&](int64_t first, const at::Tensor& block) {
    const at::Tensor columns = wide_gradient.narrow(1, first, block.size(0));
    if (first == 0) {
      at::mm_out(sums, columns, block);
    } else {
      sums.addmm_(columns, block);
    }
  });
  Store(sums, x_gradient);
}

void LinearBackwardInputAdd(const at::Tensor& y_gradient, const at::Tensor& weight,
                            const at::Tensor& x_gradient) {
  const at::Tensor wide_gradient = AsFloat(y_gradient);
  const at::Tensor sums = AsFloat(x_gradient);
  ForEachBlock(weight, [&](int64_t first, const at::Tensor& block) {
    sums.addmm_(wide_gradient.narrow(1, first, block.size(0)), block);
  });
  Store(sums, x_gradient);
}

void LinearBackwardWeight(const at::Tensor& y_gradient, const at::Tensor& x,
                          const at::Tensor& weight_gradient) {
  weight_gradient.addmm_(AsFloat(y_gradient).t(), AsFloat(x));
}

void BiasBackward(const at::Tensor& y_gradient, const at::Tensor& bias_gradient) {
  bias_gradient.add_(y_gradient.sum(0, /*keepdim=*/false, at::kFloat));
}

}  // namespace megatrain
