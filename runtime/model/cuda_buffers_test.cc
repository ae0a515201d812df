#include "runtime/model/cuda_buffers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/config/shapes.h"
#include "runtime/kernels/scratch_size.h"
#include "runtime/model/direct_model.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr KeepLevel kLevels[] = {KeepLevel::kNothing, KeepLevel::kAttention,
                                 KeepLevel::kProjections, KeepLevel::kProducts, KeepLevel::kAll};

ModelConfig SevenBillion() { return ShapeByName("qwen2.5-7b").value(); }

CudaShape ShapeOf(const ModelConfig& config, ComputeDtype dtype, int64_t tokens) {
  return MakeCudaShape(config, dtype, AttentionMode::kFast, tokens);
}

// 2^bits + offset.
void* Address(int bits, int offset) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): never read or written
  return reinterpret_cast<void*>((uintptr_t{1} << bits) + static_cast<uintptr_t>(offset));
}

// Memory of one buffer.
struct Piece {
  const void* data;
  int64_t size_bytes;
};

bool Overlap(const Piece& a, const Piece& b) {
  const auto a_begin = reinterpret_cast<uintptr_t>(a.data);
  const auto b_begin = reinterpret_cast<uintptr_t>(b.data);
  return a_begin < b_begin + b.size_bytes && b_begin < a_begin + a.size_bytes;
}

void ExpectApart(const std::vector<Piece>& pieces) {
  for (size_t i = 0; i < pieces.size(); ++i) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(pieces[i].data) % 64, 0U) << i;
    for (size_t j = 0; j < i; ++j) {
      EXPECT_FALSE(Overlap(pieces[i], pieces[j])) << j << " and " << i;
    }
  }
}

bool Within(const Piece& piece, const Piece& memory) {
  const auto begin = reinterpret_cast<uintptr_t>(memory.data);
  const auto piece_begin = reinterpret_cast<uintptr_t>(piece.data);
  return piece_begin >= begin && piece_begin + piece.size_bytes <= begin + memory.size_bytes;
}

class LayerBuffersTest : public ::testing::TestWithParam<ComputeDtype> {};

TEST_P(LayerBuffersTest, WhatLivesTogetherLiesApartAndWithinItsMemory) {
  const ModelConfig config = SevenBillion();
  const int64_t tokens = 1031;
  const CudaShape shape = ShapeOf(config, GetParam(), tokens);
  const int64_t row = tokens * SizeBytes(GetParam());
  // Addresses alone: nothing is read or written. Aligned as little as the contract allows.
  void* const workspace = Address(40, 64);
  void* const kept = Address(44, 192);
  for (const KeepLevel level : kLevels) {
    const LayerBuffers b = PlaceLayer(shape, tokens, {.level = level, .data = kept}, workspace);
    std::vector<Piece> both = {{b.attention_out, row * 3584}, {b.log_sum_exp, tokens * 28 * 4},
                               {b.qkv, row * 4608},           {b.attention_rms, tokens * 4},
                               {b.middle, row * 3584},        {b.mlp_rms, tokens * 4},
                               {b.scratch, 64 * kMiB}};
    const bool keeps_all = level == KeepLevel::kAll;
    if (keeps_all) {
      both.insert(both.end(), {{b.attention_normed, row * 3584},
                               {b.mlp_normed, row * 3584},
                               {b.activated, row * 18944}});
    }
    std::vector<Piece> attention = both;
    attention.insert(attention.end(), {{b.attention_normed_gradient, row * 3584},
                                       {b.attention_out_gradient, row * 3584},
                                       {b.qkv_gradient, row * 4608}});
    std::vector<Piece> mlp = both;
    mlp.insert(mlp.end(), {{b.gate_up, row * 2 * 18944}, {b.activated_gradient, row * 18944}});
    if (!keeps_all) {
      attention.push_back({b.attention_normed, row * 3584});
      mlp.push_back({b.mlp_normed, row * 3584});
      EXPECT_EQ(b.activated, b.activated_gradient);
    }
    ExpectApart(attention);
    ExpectApart(mlp);
    const Piece own = {workspace, b.workspace_bytes};
    const Piece keeps = {kept, b.kept_token_bytes * 1056};  // tokens in multiples of 32
    for (const auto& pieces : {attention, mlp}) {
      for (const Piece& piece : pieces) {
        EXPECT_TRUE(Within(piece, own) || Within(piece, keeps));
      }
    }
    EXPECT_EQ(Within({b.attention_out, 1}, keeps), level >= KeepLevel::kAttention);
    EXPECT_EQ(Within({b.qkv, 1}, keeps), level >= KeepLevel::kProjections);
    EXPECT_EQ(Within({b.gate_up, 1}, keeps), level >= KeepLevel::kProducts);
    EXPECT_EQ(Within({b.activated, 1}, keeps), keeps_all);
    EXPECT_FALSE(Within({b.activated_gradient, 1}, keeps));
  }
}

// A hidden size above the MLP's: the normed gradient takes the activation's place all the same.
TEST_P(LayerBuffersTest, ANarrowMlpLeavesRoomForTheNormedGradient) {
  ModelConfig config = SevenBillion();
  config.mlp_width = 512;
  const CudaShape shape = ShapeOf(config, GetParam(), 64);
  const LayerBuffers b = PlaceLayer(shape, 64, Kept(), nullptr);
  const auto begin = reinterpret_cast<uintptr_t>(b.mlp_normed_gradient);
  EXPECT_LE(begin + 64 * 3584 * SizeBytes(GetParam()), static_cast<uintptr_t>(b.workspace_bytes));
  EXPECT_FALSE(Overlap({b.mlp_normed_gradient, 64 * 3584 * SizeBytes(GetParam())},
                       {b.mlp_normed, 64 * 3584 * SizeBytes(GetParam())}));
}

TEST_P(LayerBuffersTest, HeadBuffersLieApart) {
  const ModelConfig config = SevenBillion();
  const int64_t rows = 5000;
  const CudaShape shape = ShapeOf(config, GetParam(), rows);
  void* const workspace = Address(40, 128);
  const HeadBuffers b = PlaceHead(shape, rows, workspace);
  EXPECT_EQ(b.chunk_rows, 4096);
  const int64_t matrix = rows * 3584 * SizeBytes(GetParam());
  const std::vector<Piece> pieces = {
      {b.rows, matrix},      {b.normed, matrix},   {b.normed_gradient, matrix},
      {b.rms, rows * 4},     {b.losses, rows * 4}, {b.logits, b.chunk_rows * 152064 * 4},
      {b.scratch, 64 * kMiB}};
  ExpectApart(pieces);
  for (const Piece& piece : pieces) {
    EXPECT_TRUE(Within(piece, {workspace, b.workspace_bytes}));
  }
  EXPECT_EQ(b.logit_gradient, static_cast<void*>(b.logits));
  EXPECT_EQ(b.logit_gradient_stride * SizeBytes(GetParam()), 152064 * 4);
}

// Rows too long for the kernel to hold give way to their gradient only where it is as large.
TEST_P(LayerBuffersTest, GradientsOfLongLogitsLieApartInBfloat16) {
  ModelConfig config = SevenBillion();
  config.vocab_size = kMaxVocabInPlace + 8;
  const int64_t rows = 1000;
  const HeadBuffers b = PlaceHead(ShapeOf(config, GetParam(), rows), rows, nullptr);
  const int64_t gradient_bytes = b.chunk_rows * config.vocab_size * SizeBytes(GetParam());
  EXPECT_EQ(
      Overlap({b.logits, b.chunk_rows * config.vocab_size * 4}, {b.logit_gradient, gradient_bytes}),
      GetParam() == ComputeDtype::kFloat32);
  EXPECT_EQ(b.logit_gradient_stride, config.vocab_size);
  EXPECT_LE(reinterpret_cast<uintptr_t>(b.logit_gradient) + gradient_bytes,
            static_cast<uintptr_t>(b.workspace_bytes));
}

INSTANTIATE_TEST_SUITE_P(Dtypes, LayerBuffersTest,
                         ::testing::Values(ComputeDtype::kFloat32, ComputeDtype::kBfloat16));

TEST(CudaBuffers, TheWorkspaceHoldsEverySmallerCall) {
  for (const int64_t mlp_width : {18944, 512}) {
    ModelConfig config = SevenBillion();
    config.mlp_width = mlp_width;
    const CudaShape shape = ShapeOf(config, ComputeDtype::kBfloat16, 8192);
    const int64_t enough = CudaWorkspaceBytes(shape, 8192);
    for (const int64_t tokens : {1, 127, 1024, 8191, 8192}) {
      const int64_t layer = PlaceLayer(shape, tokens, Kept(), nullptr).workspace_bytes;
      for (const KeepLevel level : kLevels) {
        EXPECT_LE(PlaceLayer(shape, tokens, {.level = level}, nullptr).workspace_bytes, layer);
      }
      EXPECT_LE(layer, enough);
      EXPECT_LE(PlaceHead(shape, tokens, nullptr).workspace_bytes, enough);
    }
    EXPECT_LT(enough, 2700 * kMiB);  // the head's: 2.5 GB of logits, and rows
  }
}

TEST(CudaBuffers, KeptBytesOfATokenAreItsActivationsOfTheLevel) {
  const CudaShape shape = ShapeOf(SevenBillion(), ComputeDtype::kBfloat16, 8192);
  const int64_t attention = 2 * 3584 + 4 * 28;
  const int64_t projections = attention + 2 * 4608 + 4;
  const int64_t products = projections + 2 * 3584 + 4 + 4 * 18944;
  EXPECT_EQ(CudaKeptTokenBytes(shape, KeepLevel::kNothing), 0);
  EXPECT_EQ(CudaKeptTokenBytes(shape, KeepLevel::kAttention), attention);
  EXPECT_EQ(CudaKeptTokenBytes(shape, KeepLevel::kProjections), projections);
  EXPECT_EQ(CudaKeptTokenBytes(shape, KeepLevel::kProducts), products);
  EXPECT_EQ(CudaKeptTokenBytes(shape, KeepLevel::kAll), products + 4 * 3584 + 2 * 18944);
}

TEST(CudaBuffers, ChunksOfTheHeadStayBelowThreeGigabytes) {
  for (const int64_t vocab : {97, 49152, 152064, 262144, 1 << 20}) {
    const int64_t rows = HeadChunkRowsOnCuda(vocab);
    EXPECT_LE(rows * vocab * 4, 2'600'000'000) << vocab;
    EXPECT_EQ(rows % 128, 0) << vocab;
    EXPECT_GE(rows, std::min<int64_t>(2048, 200'000'000 / vocab)) << vocab;
  }
}

TEST(CheckCudaTrainable, NamesWhatItCannotDo) {
  EXPECT_TRUE(CheckCudaTrainable(SevenBillion()).ok());
  EXPECT_TRUE(CheckCudaTrainable(ToyConfig()).ok());
  const auto message = [](const ModelConfig& config) {
    const absl::Status status = CheckCudaTrainable(config);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    return std::string(status.message());
  };
  ModelConfig config = ToyConfig();
  config.hidden_size = 20;
  config.mlp_width = 81;
  EXPECT_THAT(message(config), HasSubstr("hidden_size = 20 (no multiple of 8)"));
  EXPECT_THAT(message(config), HasSubstr("intermediate_size = 81 (no multiple of 8)"));
  config = ToyConfig();
  config.qkv_bias = true;
  EXPECT_THAT(message(config), HasSubstr("biases of q_proj = 48 (no multiple of 64)"));
  config = ToyConfig();
  config.head_dim = 264;
  EXPECT_THAT(message(config), HasSubstr("head_dim = 264 (above 256)"));
  config = ToyConfig();
  config.hidden_size = 32776;
  EXPECT_THAT(message(config), HasSubstr("hidden_size = 32776 (above 32768)"));
  config = ToyConfig();
  config.activation = "gelu";
  EXPECT_THAT(message(config), HasSubstr("gelu"));
}

}  // namespace
}  // namespace megatrain
