#include "runtime/ops/cross_entropy.h"

#include <cmath>

#include "runtime/base/check.h"

namespace megatrain {

at::Tensor CrossEntropyForward(const at::Tensor& logits_NV, std::span<const int32_t> targets,
                               std::span<double> losses) {
  MT_CHECK(logits_NV.is_contiguous() && logits_NV.size(0) == static_cast<int64_t>(targets.size()));
  const at::Tensor largest_N1 = logits_NV.amax(1, /*keepdim=*/true);
  logits_NV.sub_(largest_N1);
  const int64_t vocab = logits_NV.size(1);
  const float* logits = logits_NV.const_data_ptr<float>();
  for (size_t i = 0; i < targets.size(); ++i) {
    losses[i] = -static_cast<double>(logits[static_cast<int64_t>(i) * vocab + targets[i]]);
  }
  logits_NV.exp_();
  at::Tensor row_sum_N1 = logits_NV.sum(at::IntArrayRef{1}, /*keepdim=*/true);
  const float* row_sum = row_sum_N1.const_data_ptr<float>();
  for (size_t i = 0; i < targets.size(); ++i) {
    losses[i] += std::log(static_cast<double>(row_sum[i]));
  }
  return row_sum_N1;
}

void CrossEntropyBackward(const at::Tensor& exponentials_NV, const at::Tensor& row_sum_N1,
                          std::span<const int32_t> targets, double scale) {
  exponentials_NV.mul_(row_sum_N1.reciprocal().mul_(scale));
  const int64_t vocab = exponentials_NV.size(1);
  auto* gradient = exponentials_NV.mutable_data_ptr<float>();
  for (size_t i = 0; i < targets.size(); ++i) {
    gradient[static_cast<int64_t>(i) * vocab + targets[i]] -= static_cast<float>(scale);
  }
}

}  // namespace megatrain
