#include "runtime/model/workspace_size.h"

#include <algorithm>

namespace megatrain {
namespace {

// Of a bf16 weight as much is fp32 at a time: linear.h, which includes LibTorch.
constexpr int64_t kWeightBlockElements = 1 << 20;

// Elements of decoder_layer.cc and head.cc; activations are fp32 there in either compute dtype.
struct Sizes {
  int64_t d;
  int64_t ff;
  int64_t query;  // heads * head_dim
  int64_t kv;     // kv_heads * head_dim
  int64_t heads;
  int64_t head_dim;
  bool narrow;  // bf16 outside: fp32 copies of the hidden states and of their gradient
};

Sizes SizesOf(const ModelConfig& config, ComputeDtype dtype) {
  return {.d = config.hidden_size,
          .ff = config.mlp_width,
          .query = config.head_count * config.head_dim,
          .kv = config.kv_head_count * config.head_dim,
          .heads = config.head_count,
          .head_dim = config.head_dim,
          .narrow = dtype != ComputeDtype::kFloat32};
}

// All of these are bytes a token.

// RmsNormBackward: the normed values and one more.
int64_t NormBackwardBytes(const Sizes& s) { return 8 * s.d; }

// Kept from the attention half until the end of the backward pass.
int64_t AttentionHalfBytes(const Sizes& s) {
  const int64_t copies = s.narrow ? 8 * s.d : 0;
  const int64_t rope = 4 * s.head_dim;
  const int64_t norm = 4 * s.d + 4;
  const int64_t heads = 4 * (2 * s.query + 2 * s.kv);
  const int64_t log_sum_exp = 4 * s.heads + 64;  // a piece per document, rounded up
  const int64_t hidden = 4 * s.d;
  return copies + rope + norm + heads + log_sum_exp + hidden;
}

int64_t MlpBytes(const Sizes& s) {
  const int64_t norm = 4 * s.d + 4;
  const int64_t wide = 16 * s.ff;  // gate, up, activation, gradient
  const int64_t normed_gradient = 4 * s.d;
  return norm + wide + normed_gradient;
}

int64_t AttentionBackwardBytes(const Sizes& s) {
  const int64_t mixed = 4 * s.query;
  const int64_t gradients = 4 * (s.query + 2 * s.kv);
  const int64_t rotation = 2 * s.query;
  const int64_t normed_gradient = 4 * s.d;
  return gradients + std::max(mixed + rotation, normed_gradient);
}

// Of LibTorch's kernel, per token of one document: the gradients with every head its own keys and
// values, or the result before it is copied to its place.
int64_t AttentionKernelBytes(const Sizes& s) { return 12 * s.query; }

// Of LibTorch's kernel, for each thread: blocks of scores and their gradients, and sums.
int64_t AttentionThreadBytes(const Sizes& s, int64_t document_tokens) {
  const int64_t queries = std::min<int64_t>(document_tokens, document_tokens >= 768 ? 256 : 64);
  const int64_t keys = std::min<int64_t>(document_tokens, 512);
  return 4 * (2 * queries * keys + queries * (s.head_dim + 4)) + 64;
}

int64_t LayerBytes(const Sizes& s, int64_t tokens, int64_t document_tokens) {
  const int64_t attention_backward = AttentionBackwardBytes(s);
  const int64_t kernel = document_tokens * AttentionKernelBytes(s) +
                         kMaxComputeThreads * AttentionThreadBytes(s, document_tokens);
  const int64_t rest = std::max({tokens * MlpBytes(s), tokens * (4 * s.d + NormBackwardBytes(s)),
                                 tokens * attention_backward + kernel});
  return tokens * AttentionHalfBytes(s) + rest;
}

int64_t HeadBytes(const Sizes& s, int64_t vocab_size, int64_t loss_tokens) {
  const int64_t rows = loss_tokens * (12 * s.d + 4);  // gathered, normed, its gradient
  const int64_t logits = HeadChunkRows(vocab_size, loss_tokens) * (vocab_size * 4 + 12);
  const int64_t narrow = s.narrow ? 2 * s.d : 0;
  return rows + std::max(logits, loss_tokens * (4 * s.d + narrow + NormBackwardBytes(s)));
}

// One block of the widest weight as fp32, for bf16.
int64_t WeightBlockBytes(const Sizes& s, int64_t vocab_size) {
  const int64_t rows = std::max({vocab_size, s.ff, s.query, s.d});
  const int64_t columns = std::max({s.d, s.ff, s.query});
  return s.narrow ? 4 * std::min(rows * columns, std::max(kWeightBlockElements, columns)) : 0;
}

}  // namespace

int64_t HeadChunkRows(int64_t vocab_size, int64_t loss_tokens) {
  constexpr int64_t kChunkElements = 16 << 20;
  constexpr int64_t kRowStep = 32;  // keeps each chunk's rows 64-byte aligned
  const int64_t rows = std::max<int64_t>(kChunkElements / vocab_size / kRowStep, 1) * kRowStep;
  return std::min(rows, loss_tokens);
}

int64_t WorkspaceBytes(const ModelConfig& config, ComputeDtype dtype,
                       int64_t max_micro_batch_tokens, int64_t max_document_tokens,
                       int64_t max_loss_tokens) {
  // Every tensor is rounded up to 64 bytes, and none of the small ones above counts a row vector
  // of its own such as a sum over tokens: at most this many live at once.
  constexpr int64_t kRoundedTensors = 64;
  const Sizes s = SizesOf(config, dtype);
  const int64_t vectors = 16 * std::max({s.d, s.ff, s.query});
  const int64_t bytes = std::max(LayerBytes(s, max_micro_batch_tokens, max_document_tokens),
                                 HeadBytes(s, config.vocab_size, max_loss_tokens)) +
                        WeightBlockBytes(s, config.vocab_size) + vectors + kRoundedTensors * 64;
  const int64_t gaps = bytes / 8;  // what is free between pieces of other sizes
  return (bytes + gaps + 63) / 64 * 64;
}

}  // namespace megatrain
