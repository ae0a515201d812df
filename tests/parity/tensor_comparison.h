#ifndef TESTS_PARITY_TENSOR_COMPARISON_H_
#define TESTS_PARITY_TENSOR_COMPARISON_H_

#include <span>
#include <vector>

#include "runtime/config/model_layout.h"

namespace megatrain {

double Norm(std::span<const double> values);

// Of one length, as below.
std::vector<double> Difference(std::span<const double> a, std::span<const double> b);

// ||ours - reference|| / ||reference||.
double RelativeError(std::span<const double> ours, std::span<const double> reference);

// Calls body(unit, tensor) for every tensor.
template <typename Body>
void ForEachTensor(const ModelLayout& layout, Body body) {
  for (size_t unit = 0; unit < layout.units.size(); ++unit) {
    for (const TensorLayout& tensor : layout.units[unit].tensors) {
      body(static_cast<int>(unit), tensor);
    }
  }
}

}  // namespace megatrain

#endif  // TESTS_PARITY_TENSOR_COMPARISON_H_
