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

}  // namespace

void LinearForward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& y) {
  ForEachBlock(weight, [&](int64_t first, const at::Tensor& block) {
    at::Tensor columns = y.narrow(1, first, block.size(0));
    at::mm_out(columns, x, block.t());
  });
}

void LinearForward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& addend,
                   const at::Tensor& y) {
  LinearForward(x, weight, y);
  y.add_(addend);
}

void LinearBackwardInput(const at::Tensor& y_gradient, const at::Tensor& weight,
                         const at::Tensor& x_gradient) {
  at::Tensor sums = x_gradient;
  ForEachBlock(weight, [&](int64_t first, const at::Tensor& block) {
    const at::Tensor columns = y_gradient.narrow(1, first, block.size(0));
    if (first == 0) {
      at::mm_out(sums, columns, block);
    } else {
      sums.addmm_(columns, block);
    }
  });
}

void LinearBackwardInputAdd(const at::Tensor& y_gradient, const at::Tensor& weight,
                            const at::Tensor& x_gradient) {
  ForEachBlock(weight, [&](int64_t first, const at::Tensor& block) {
    x_gradient.addmm_(y_gradient.narrow(1, first, block.size(0)), block);
  });
}

void LinearBackwardWeight(const at::Tensor& y_gradient, const at::Tensor& x,
                          const at::Tensor& weight_gradient) {
  weight_gradient.addmm_(y_gradient.t(), x);
}

void BiasBackward(const at::Tensor& y_gradient, const at::Tensor& bias_gradient) {
  bias_gradient.add_(y_gradient.sum(0));
}

}  // namespace megatrain
