#include "runtime/kernels/attention_shape.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <vector>

namespace megatrain {
namespace {

AttentionShape Shape(int head_dim = 64) {
  return {.max_tokens = 1000, .heads = 6, .kv_heads = 2, .head_dim = head_dim};
}

template <typename T>
T Entry(const std::vector<std::byte>& tables, int64_t offset_bytes, int64_t index) {
  T value;
  std::memcpy(&value, &tables[offset_bytes + index * sizeof(T)], sizeof(T));
  return value;
}

TEST(AttentionTables, NameEveryDocumentAndPadToAPowerOfTwo) {
  const AttentionShape shape = Shape();
  const std::vector<int32_t> offsets = {0, 1, 131, 200};
  const AttentionTables parts = AttentionTablesOf(shape, 200, 3);
  std::vector<std::byte> tables(parts.size_bytes, std::byte{0xff});
  FillAttentionTables(shape, offsets, tables.data());
  ASSERT_EQ(parts.documents, 4);
  const std::vector<int32_t> rows = {0, 1, 131, 200, 200};
  const std::vector<int32_t> lengths = {1, 130, 69, 0};
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(Entry<int64_t>(tables, parts.qkv_offsets, i), rows[i] * 10 * 64);
    EXPECT_EQ(Entry<int64_t>(tables, parts.out_offsets, i), rows[i] * 6 * 64);
    EXPECT_EQ(Entry<int64_t>(tables, parts.key_offsets, i), rows[i] * 2 * 64);
    EXPECT_EQ(Entry<int64_t>(tables, parts.log_sum_exp_offsets, i), rows[i] * 6);
  }
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(Entry<int32_t>(tables, parts.lengths, i), lengths[i]);
  }
}

TEST(AttentionTables, TilesCoverEveryRowOnceAndTheRestIsWithoutWork) {
  for (const int head_dim : {64, 256}) {
    const AttentionShape shape = Shape(head_dim);
    const std::vector<int32_t> offsets = {0, 1, 131, 195, 200};
    const AttentionTables parts = AttentionTablesOf(shape, 200, 4);
    std::vector<std::byte> tables(parts.size_bytes, std::byte{0xff});
    FillAttentionTables(shape, offsets, tables.data());
    std::vector<int> covered(200);
    for (int64_t i = 0; i < parts.tiles; ++i) {
      const auto tile = Entry<AttentionTile>(tables, parts.tile_table, i);
      const int end = std::min(tile.begin + AttentionTileRows(shape), tile.document_end);
      for (int row = tile.begin; row < end; ++row) {
        EXPECT_GE(row, tile.document_begin);
        ++covered[row];
      }
    }
    EXPECT_EQ(covered, std::vector<int>(200, 1));
  }
}

TEST(AttentionTables, BytesGrowWithTokensAndDocuments) {
  const AttentionShape shape = Shape();
  for (int64_t n = 1; n < 300; ++n) {
    EXPECT_LE(AttentionTableBytes(shape, 1000, n), AttentionTableBytes(shape, 1000, n + 1));
    EXPECT_LE(AttentionTableBytes(shape, n, 8), AttentionTableBytes(shape, n + 1, 8));
  }
}

TEST(AttentionScratch, HoldsWhatTheCallsUse) {
  AttentionShape shape = {.max_tokens = 8192, .heads = 28, .kv_heads = 4, .head_dim = 128};
  // fp32 sums: query gradients in fused rows, two gradients of every query head, one number a row.
  const int64_t sums = int64_t{8192} * (36 * 128 + 2 * 28 * 128 + 28) * 4;
  EXPECT_GE(CudnnWorkspaceBytes(shape), sums);
  EXPECT_LE(CudnnWorkspaceBytes(shape), sums + (64 << 20));
  EXPECT_EQ(AttentionScratchBytes(shape),
            CudnnWorkspaceBytes(shape) + 2 * int64_t{8192} * 4 * 128 * 2);
  shape.mode = AttentionMode::kDeterministic;
  EXPECT_LE(CudnnWorkspaceBytes(shape), sums + (int64_t{2} << 30) + (64 << 20));
  EXPECT_GE(CudnnWorkspaceBytes(shape), int64_t{2} * 28 * 4096 * 4096 * 2);
  shape.dtype = ComputeDtype::kFloat32;
  EXPECT_EQ(AttentionScratchBytes(shape), 8192 * 28 * 4);
}

TEST(AttentionScratch, CudnnServesBfloat16WithoutSinks) {
  AttentionShape shape = Shape();
  EXPECT_TRUE(CudnnServes(shape));
  EXPECT_FALSE(CudnnServes(Shape(72)));
  shape.sinks = true;
  EXPECT_FALSE(CudnnServes(shape));
  shape = Shape();
  shape.dtype = ComputeDtype::kFloat32;
  EXPECT_FALSE(CudnnServes(shape));
}

}  // namespace
}  // namespace megatrain
