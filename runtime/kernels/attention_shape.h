// What attention of packed rows is asked to do and how much device memory it takes: numbers
// that planners and templates need without CUDA.

#ifndef RUNTIME_KERNELS_ATTENTION_SHAPE_H_
#define RUNTIME_KERNELS_ATTENTION_SHAPE_H_

#include <cstdint>
#include <span>

#include "runtime/model/layer_template.h"

namespace megatrain {

// kFast: the fastest kernels, whose query gradients are summed in an order that changes from run
// to run. kDeterministic: equal inputs, equal bits.
enum class AttentionMode { kFast, kDeterministic };

// Scores are scaled by 1 / sqrt(head_dim). heads is a multiple of kv_heads, head_dim of 8.
struct AttentionShape {
  int64_t max_tokens = 0;  // of a micro-batch
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;    // at most 256
  int window = 0;      // a query sees itself and the window - 1 keys before it; 0: all before it
  bool sinks = false;  // one more logit a head in every row's softmax, without a value
  ComputeDtype dtype = ComputeDtype::kBfloat16;
  AttentionMode mode = AttentionMode::kFast;

  // Elements of one row of the fused buffer: query heads, key heads, value heads.
  int64_t QkvWidth() const { return (heads + int64_t{2} * kv_heads) * head_dim; }
  int64_t OutWidth() const { return int64_t{heads} * head_dim; }
  int64_t KeyWidth() const { return int64_t{kv_heads} * head_dim; }
};

// Scratch memory of PackedAttention::Forward and Backward, 256-byte aligned.
int64_t AttentionScratchBytes(const AttentionShape& shape);

// The part of it that cuDNN may use in one call. A plan that needs more is not used.
int64_t CudnnWorkspaceBytes(const AttentionShape& shape);

// The two parts beside it: dense gradients of the keys and of the values.
int64_t KeyGradientBytes(const AttentionShape& shape);

// True where cuDNN serves the shape: else it is ExactAttention's.
bool CudnnServes(const AttentionShape& shape);

// Rows of one block of ExactAttention.
int AttentionTileRows(const AttentionShape& shape);

// Up to AttentionTileRows tokens of one document. begin == document_end: no work.
struct AttentionTile {
  int32_t document_begin;
  int32_t document_end;
  int32_t begin;
  int32_t unused;
};

// Where the parts of a micro-batch's tables lie, in bytes from their start. Offsets are in
// elements, documents + 1 of them; documents are padded with empty ones to a power of two.
struct AttentionTables {
  int64_t documents;            // padded
  int64_t tiles;                // entries, the last ones without work
  int64_t lengths;              // int32 a document
  int64_t qkv_offsets;          // int64, rows of QkvWidth
  int64_t out_offsets;          // int64, rows of OutWidth
  int64_t key_offsets;          // int64, rows of KeyWidth
  int64_t log_sum_exp_offsets;  // int64, rows of `heads`
  int64_t tile_table;           // AttentionTile
  int64_t size_bytes;
};
AttentionTables AttentionTablesOf(const AttentionShape& shape, int64_t tokens, int64_t documents);

// Bytes of the tables of a micro-batch; grows with both numbers.
int64_t AttentionTableBytes(const AttentionShape& shape, int64_t tokens, int64_t documents);

// Fills the host copy: AttentionTableBytes of memory, 16-byte aligned. `document_offsets` are
// the micro-batch's, first 0, last its tokens.
void FillAttentionTables(const AttentionShape& shape, std::span<const int32_t> document_offsets,
                         void* tables);

}  // namespace megatrain

#endif  // RUNTIME_KERNELS_ATTENTION_SHAPE_H_
