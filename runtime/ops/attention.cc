#include "runtime/ops/attention.h"

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sum.h>

#include <tuple>

namespace megatrain {
namespace {

constexpr double kNoDropout = 0.0;

// One document's rows.
struct Range {
  int64_t start;
  int64_t length;
};

std::vector<Range> Documents(std::span<const int32_t> offsets) {
  std::vector<Range> ranges;
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    if (offsets[i + 1] > offsets[i]) {
      ranges.push_back({.start = offsets[i], .length = offsets[i + 1] - offsets[i]});
    }
  }
  return ranges;
}

// The kernel takes [batch, heads, S, C] with any strides. The key/value heads are its batch and the
// group that shares one its heads, so that grouped keys are read in place with a stride of 0.
at::Tensor Grouped(const at::Tensor& x_THC, Range document, int64_t kv_heads) {
  const int64_t group = x_THC.size(1) / kv_heads;
  return x_THC.narrow(0, document.start, document.length)
      .unflatten(1, {kv_heads, group})
      .permute({1, 2, 0, 3});
}

at::Tensor Shared(const at::Tensor& x_TKC, Range document, int64_t group) {
  const at::Tensor x_K1SC =
      x_TKC.narrow(0, document.start, document.length).permute({1, 0, 2}).unsqueeze(1);
  return x_K1SC.expand({-1, group, -1, -1});
}

// Sums the gradients of the heads that share a key/value head into its rows.
void SumGroup(const at::Tensor& gradient_KGSC, Range document, const at::Tensor& out_TKC) {
  at::Tensor out_KSC = out_TKC.narrow(0, document.start, document.length).permute({1, 0, 2});
  if (gradient_KGSC.size(1) == 1) {
    out_KSC.copy_(gradient_KGSC.squeeze(1));
  } else {
    at::sum_out(out_KSC, gradient_KGSC, at::IntArrayRef{1});
  }
}

}  // namespace

AttentionResult AttentionForward(const AttentionInput& input) {
  const int64_t kv_heads = input.key_TKC.size(1);
  const int64_t group = input.query_THC.size(1) / kv_heads;
  AttentionResult result = {.out_THC = at::empty_like(input.query_THC), .log_sum_exp = {}};
  for (const Range document : Documents(input.document_offsets)) {
    auto [out_KGSC, log_sum_exp_KGS] = at::_scaled_dot_product_flash_attention_for_cpu(
        Grouped(input.query_THC, document, kv_heads), Shared(input.key_TKC, document, group),
        Shared(input.value_TKC, document, group), kNoDropout, /*is_causal=*/true);
    Grouped(result.out_THC, document, kv_heads).copy_(out_KGSC);
    result.log_sum_exp.push_back(std::move(log_sum_exp_KGS));
  }
  return result;
}

void AttentionBackward(const AttentionInput& input, const AttentionResult& result,
                       const at::Tensor& out_gradient_THC, const AttentionGradients& gradients) {
  const int64_t kv_heads = input.key_TKC.size(1);
  const int64_t group = input.query_THC.size(1) / kv_heads;
  size_t index = 0;
  for (const Range document : Documents(input.document_offsets)) {
    const auto [query_KGSC, key_KGSC, value_KGSC] =
        at::_scaled_dot_product_flash_attention_for_cpu_backward(
            Grouped(out_gradient_THC, document, kv_heads),
            Grouped(input.query_THC, document, kv_heads), Shared(input.key_TKC, document, group),
            Shared(input.value_TKC, document, group), Grouped(result.out_THC, document, kv_heads),
            result.log_sum_exp[index++], kNoDropout, /*is_causal=*/true);
    Grouped(gradients.query_THC, document, kv_heads).copy_(query_KGSC);
    SumGroup(key_KGSC, document, gradients.key_TKC);
    SumGroup(value_KGSC, document, gradients.value_TKC);
  }
}

}  // namespace megatrain
