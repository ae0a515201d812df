// Causal attention within each document of a micro-batch, with grouped heads.

#ifndef RUNTIME_OPS_ATTENTION_H_
#define RUNTIME_OPS_ATTENTION_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace megatrain {

// Queries [T, H, C], keys and values [T, K, C], fp32 and contiguous; head h of the queries reads
// key/value head h / (H / K).
struct AttentionInput {
  at::Tensor query_THC;
  at::Tensor key_TKC;
  at::Tensor value_TKC;
  std::span<const int32_t> document_offsets;  // [documents + 1], first 0, last T
};

// What the backward pass needs of the forward one besides its input.
struct AttentionResult {
  at::Tensor out_THC;
  std::vector<at::Tensor> log_sum_exp;  // per document, fp32 [K, G, S]
};

// softmax(q k^T / sqrt(C)) v over the keys of the same document that are not later. Documents do
// not see one another, in their bits neither.
AttentionResult AttentionForward(const AttentionInput& input);

// Shapes and dtypes as in AttentionInput; all is written.
struct AttentionGradients {
  at::Tensor query_THC;
  at::Tensor key_TKC;
  at::Tensor value_TKC;
};
void AttentionBackward(const AttentionInput& input, const AttentionResult& result,
                       const at::Tensor& out_gradient_THC, const AttentionGradients& gradients);

}  // namespace megatrain

#endif  // RUNTIME_OPS_ATTENTION_H_
