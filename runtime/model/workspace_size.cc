#include "runtime/model/workspace_size.h"

#include <algorithm>

namespace megatrain {
namespace {

// Of a bf16 weight as much is fp32 at a time: linear.h, which includes LibTorch.
constexpr int64_t kWeightBlockElements = 1 << 20;

// Bytes a token, in the terms of decoder_layer.cc and head.cc: e a compute element, 4 an fp32 one.
struct Sizes {
  int64_t d;
  int64_t ff;
  int64_t query;  // heads * head_dim
  int64_t kv;     // kv_heads * head_dim
  int64_t heads;
  int64_t head_dim;
  int64_t e;
  bool converts;  // bf16: fp32 copies beside
};

Sizes SizesOf(const ModelConfig& config, ComputeDtype dtype) {
  return {.d = config.hidden_size,
          .ff = config.mlp_width,
          .query = config.head_count * config.head_dim,
          .kv = config.kv_head_count * config.head_dim,
          .heads = config.head_count,
          .head_dim = config.head_dim,
          .e = SizeBytes(dtype),
          .converts = dtype != ComputeDtype::kFloat32};
}

// RmsNormBackward: the normed values and one more in fp32; for bf16 the copies of both operands
// and of the sum's two sides.
int64_t NormBackwardBytes(const Sizes& s) { return (s.converts ? 20 : 8) * s.d; }

// fp32 copies of what a product of that width reads and writes, and of what is added to it.
int64_t ProductBytes(const Sizes& s, int64_t in, int64_t out) {
  return s.converts ? 4 * (in + 2 * out) : 0;
}

// Kept from the attention half until the end of the backward pass.
int64_t AttentionHalfBytes(const Sizes& s) {
  const int64_t rope = 4 * s.head_dim;
  const int64_t norm = s.d * s.e + 4;
  const int64_t heads = 4 * (2 * s.query + 2 * s.kv) + (s.converts ? 2 * s.query : 0);
  const int64_t log_sum_exp = 4 * s.heads + 64;  // a piece per document, rounded up
  const int64_t hidden = s.d * s.e;
  return rope + norm + heads + log_sum_exp + hidden;
}

int64_t MlpBytes(const Sizes& s) {
  const int64_t norm = s.d * s.e + 4;
  const int64_t wide = 4 * s.ff * s.e;  // gate, up, activation, gradient
  const int64_t normed_gradient = s.d * s.e;
  return norm + wide +
         std::max(ProductBytes(s, s.d, s.ff), normed_gradient + ProductBytes(s, s.ff, s.d));
}

int64_t AttentionBackwardBytes(const Sizes& s) {
  const int64_t mixed = s.query * (s.e + (s.converts ? 4 : 0));
  const int64_t gradients = 4 * (s.query + 2 * s.kv);
  const int64_t rotation = 2 * s.query;
  const int64_t projections =
      s.d * s.e + (s.converts ? 2 * s.query : 0) + ProductBytes(s, s.query, s.d);
  const int64_t output = s.query * s.e + ProductBytes(s, s.d, s.query);
  return std::max(output, gradients + std::max(mixed + rotation, projections));
}

// Of LibTorch's kernel, per token of one document: the gradients with every head its own keys and
// values, or the result before it is copied to its place.
int64_t AttentionKernelBytes(const Sizes& s) { return 3 * 4 * s.query; }

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
  const int64_t rest = std::max({tokens * MlpBytes(s), tokens * (s.d * s.e + NormBackwardBytes(s)),
                                 tokens * attention_backward + kernel});
  return tokens * AttentionHalfBytes(s) + rest;
}

int64_t HeadBytes(const Sizes& s, int64_t vocab_size, int64_t loss_tokens) {
  const int64_t rows = loss_tokens * (3 * s.d * s.e + 4);  // gathered, normed, its gradient
  const int64_t chunk = HeadChunkRows(vocab_size, loss_tokens);
  const int64_t logits = chunk * (vocab_size * 4 + 12) + (s.converts ? chunk * 8 * s.d : 0);
  return rows + std::max(logits, loss_tokens * (s.d * s.e + NormBackwardBytes(s)));
}

// One block of the widest weight as fp32, for bf16.
int64_t WeightBlockBytes(const Sizes& s, int64_t vocab_size) {
  const int64_t rows = std::max({vocab_size, s.ff, s.query, s.d});
  const int64_t columns = std::max({s.d, s.ff, s.query});
  return s.converts ? 4 * std::min(rows * columns, std::max(kWeightBlockElements, columns)) : 0;
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
  const int64_t vectors = 4 * 4 * std::max({s.d, s.ff, s.query});
  const int64_t bytes = std::max(LayerBytes(s, max_micro_batch_tokens, max_document_tokens),
                                 HeadBytes(s, config.vocab_size, max_loss_tokens)) +
                        WeightBlockBytes(s, config.vocab_size) + vectors + kRoundedTensors * 64;
  const int64_t gaps = bytes / 8;  // what is free between pieces of other sizes
  return (bytes + gaps + 63) / 64 * 64;
}

}  // namespace megatrain
