#include "runtime/kernels/attention_shape.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

#include "runtime/base/round_up.h"

namespace megatrain {
namespace {

constexpr int64_t kSectionAlignment = 256;

// Room for `bytes` at the next aligned place after `end`; moves `end` behind it.
int64_t Section(int64_t bytes, int64_t& end) {
  const int64_t begin = end;
  end = RoundUp(begin + bytes, kSectionAlignment);
  return begin;
}

template <typename T>
T* At(void* base, int64_t offset_bytes) {
  return reinterpret_cast<T*>(static_cast<std::byte*>(base) + offset_bytes);
}

// fp32 sums of the query gradient in rows of the fused buffer, and with grouped heads key and
// value gradients of every query head before they are summed over a group.
int64_t CudnnSumBytes(const AttentionShape& shape) {
  const int64_t groups = shape.heads == shape.kv_heads ? 0 : 2 * shape.OutWidth();
  return shape.max_tokens * (shape.QkvWidth() + groups + shape.heads) * 4;
}

}  // namespace

bool CudnnServes(const AttentionShape& shape) {
  // Other head sizes make cuDNN ignore the bound on packed tokens.
  return shape.dtype == ComputeDtype::kBfloat16 && !shape.sinks && shape.head_dim % 16 == 0;
}

int64_t CudnnWorkspaceBytes(const AttentionShape& shape) {
  // What cuDNN adds for itself: counters, and tiles at the end of a tensor.
  constexpr int64_t kSlack = int64_t{32} << 20;
  const int64_t sums = CudnnSumBytes(shape) + kSlack;
  if (shape.mode == AttentionMode::kFast) {
    return sums;
  }
  // All scores of every head are kept in bf16 here, for the padded batch.
  constexpr int64_t kMostScores = int64_t{2} << 30;
  const int64_t longest = RoundUp(shape.max_tokens, 512);
  const int64_t row_scores = 2 * longest * shape.heads * 2;
  return sums + (row_scores > kMostScores / longest ? kMostScores : row_scores * longest);
}

int64_t KeyGradientBytes(const AttentionShape& shape) {
  return RoundUp(shape.max_tokens * shape.KeyWidth() * SizeBytes(shape.dtype), kSectionAlignment);
}

int64_t AttentionScratchBytes(const AttentionShape& shape) {
  const int64_t row_dots = RoundUp(shape.max_tokens * shape.heads * 4, kSectionAlignment);
  if (!CudnnServes(shape)) {
    return row_dots;
  }
  return std::max(row_dots, 2 * KeyGradientBytes(shape) + CudnnWorkspaceBytes(shape));
}

int AttentionTileRows(const AttentionShape& shape) { return shape.head_dim <= 128 ? 64 : 32; }

AttentionTables AttentionTablesOf(const AttentionShape& shape, int64_t tokens, int64_t documents) {
  AttentionTables tables;
  tables.documents = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(documents)));
  tables.tiles = tokens / AttentionTileRows(shape) + documents;
  int64_t end = 0;
  const int64_t offsets_bytes = (tables.documents + 1) * 8;
  tables.lengths = Section(tables.documents * 4, end);
  tables.qkv_offsets = Section(offsets_bytes, end);
  tables.out_offsets = Section(offsets_bytes, end);
  tables.key_offsets = Section(offsets_bytes, end);
  tables.log_sum_exp_offsets = Section(offsets_bytes, end);
  tables.tile_table = Section(tables.tiles * static_cast<int64_t>(sizeof(AttentionTile)), end);
  tables.size_bytes = end;
  return tables;
}

int64_t AttentionTableBytes(const AttentionShape& shape, int64_t tokens, int64_t documents) {
  return AttentionTablesOf(shape, tokens, documents).size_bytes;
}

void FillAttentionTables(const AttentionShape& shape, std::span<const int32_t> document_offsets,
                         void* tables) {
  const int64_t documents = static_cast<int64_t>(document_offsets.size()) - 1;
  const AttentionTables parts = AttentionTablesOf(shape, document_offsets.back(), documents);
  std::memset(tables, 0, parts.size_bytes);
  for (int64_t i = 0; i <= parts.documents; ++i) {
    const int64_t row = document_offsets[std::min(i, documents)];
    At<int64_t>(tables, parts.qkv_offsets)[i] = row * shape.QkvWidth();
    At<int64_t>(tables, parts.out_offsets)[i] = row * shape.OutWidth();
    At<int64_t>(tables, parts.key_offsets)[i] = row * shape.KeyWidth();
    At<int64_t>(tables, parts.log_sum_exp_offsets)[i] = row * shape.heads;
  }
  AttentionTile* tile = At<AttentionTile>(tables, parts.tile_table);
  for (int64_t i = 0; i < documents; ++i) {
    const int32_t begin = document_offsets[i];
    const int32_t end = document_offsets[i + 1];
    At<int32_t>(tables, parts.lengths)[i] = end - begin;
    for (int32_t row = begin; row < end; row += AttentionTileRows(shape)) {
      *tile++ = {.document_begin = begin, .document_end = end, .begin = row, .unused = 0};
    }
  }
}

}  // namespace megatrain
