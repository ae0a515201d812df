#include "tests/parity/tensor_comparison.h"

#include <cmath>

namespace megatrain {

double Norm(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) {
    sum += value * value;
  }
  return std::sqrt(sum);
}

std::vector<double> Difference(std::span<const double> a, std::span<const double> b) {
  std::vector<double> difference(a.size());
  for (size_t i = 0; i < a.size(); ++i) {
    difference[i] = a[i] - b[i];
  }
  return difference;
}

double RelativeError(std::span<const double> ours, std::span<const double> reference) {
  return Norm(Difference(ours, reference)) / Norm(reference);
}

}  // namespace megatrain
