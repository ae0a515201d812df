#include "runtime/model/workspace_size.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "runtime/model/direct_model.h"

namespace megatrain {
namespace {

struct Shape {
  ModelConfig config;
  ComputeDtype dtype = ComputeDtype::kFloat32;
  std::vector<int64_t> lengths;
  int loss_every = 1;
};

int64_t Bound(const Shape& shape, const RandomBatch& batch) {
  return WorkspaceBytes(shape.config, shape.dtype, static_cast<int64_t>(batch.tokens.size()),
                        *std::max_element(shape.lengths.begin(), shape.lengths.end()),
                        static_cast<int64_t>(batch.loss_positions.size()));
}

int64_t OneOf(std::mt19937& random, const std::vector<int64_t>& values) {
  return values[random() % values.size()];
}

Shape RandomShape(std::mt19937& random) {
  Shape shape;
  shape.config = ToyConfig();
  shape.config.layer_count = 1;
  shape.config.layer_uses_window.assign(1, false);
  shape.config.head_dim = OneOf(random, {2, 8, 16, 64, 80});
  shape.config.kv_head_count = OneOf(random, {1, 2, 3});
  shape.config.head_count = shape.config.kv_head_count * OneOf(random, {1, 2, 4});
  shape.config.hidden_size = OneOf(random, {8, 48, 64, 200});
  shape.config.mlp_width = OneOf(random, {8, 96, 512});
  shape.config.vocab_size = OneOf(random, {11, 97, 5000});
  shape.config.tied = random() % 2 == 0;
  if (random() % 2 == 0) {
    shape.config.architecture = "Qwen2ForCausalLM";
    shape.config.model_type = "qwen2";
    shape.config.qkv_bias = true;
  }
  shape.dtype = random() % 2 == 0 ? ComputeDtype::kFloat32 : ComputeDtype::kBfloat16;
  const int64_t documents = OneOf(random, {1, 2, 7, 40});
  const int64_t longest = OneOf(random, {1, 3, 30, documents < 3 ? 900 : 100});
  for (int64_t i = 0; i < documents; ++i) {
    shape.lengths.push_back(1 + static_cast<int64_t>(random() % longest));
  }
  shape.loss_every = static_cast<int>(OneOf(random, {1, 5}));
  return shape;
}

TEST(WorkspaceBytes, IsEnoughForRandomShapes) {
  constexpr int kSeed = 31;
  std::mt19937 random(kSeed);
  for (int i = 0; i < 120; ++i) {
    const Shape shape = RandomShape(random);
    const RandomBatch batch(shape.lengths, shape.config.vocab_size, shape.loss_every, random);
    const AlignedMemory memory(Bound(shape, batch));
    DirectModel model(shape.config, shape.dtype, kSeed);
    const auto result =
        model.Run(batch.View(), 1.0, {.data = memory.data(), .size_bytes = memory.size_bytes()});
    ASSERT_TRUE(result.ok()) << result.status() << ", seed " << kSeed << ", shape " << i << ": "
                             << batch.tokens.size() << " tokens, heads " << shape.config.head_count
                             << "/" << shape.config.kv_head_count << "x" << shape.config.head_dim
                             << ", d " << shape.config.hidden_size << ", ff "
                             << shape.config.mlp_width << ", vocabulary "
                             << shape.config.vocab_size;
  }
}

Shape Ordinary(int64_t d, int64_t heads, int64_t kv_heads, int64_t ff, int64_t vocab) {
  Shape shape = {.config = ToyConfig(), .lengths = {}};
  shape.config.layer_count = 1;
  shape.config.layer_uses_window.assign(1, false);
  shape.config.hidden_size = d;
  shape.config.head_count = heads;
  shape.config.kv_head_count = kv_heads;
  shape.config.head_dim = 64;
  shape.config.mlp_width = ff;
  shape.config.vocab_size = vocab;
  return shape;
}

// Two fifths of the bound are not enough for shapes that people train, though few threads run here.
TEST(WorkspaceBytes, IsNotFarTooMuchForOrdinaryShapes) {
  constexpr int kSeed = 32;
  std::mt19937 random(kSeed);
  Shape quickstart = Ordinary(576, 9, 3, 1536, 1000);
  quickstart.lengths.assign(8, 31);
  Shape long_document = Ordinary(576, 9, 3, 1536, 1000);
  long_document.lengths.assign(1, 800);
  Shape wide_vocabulary = Ordinary(64, 1, 1, 128, 49152);
  wide_vocabulary.lengths.assign(2, 200);
  for (Shape shape : {quickstart, long_document, wide_vocabulary}) {
    for (const ComputeDtype dtype : {ComputeDtype::kFloat32, ComputeDtype::kBfloat16}) {
      shape.dtype = dtype;
      const RandomBatch batch(shape.lengths, shape.config.vocab_size, 1, random);
      const AlignedMemory memory(Bound(shape, batch));
      DirectModel model(shape.config, shape.dtype, kSeed);
      const auto run_within = [&](int64_t size_bytes) {
        return model.Run(batch.View(), 1.0, {.data = memory.data(), .size_bytes = size_bytes})
            .status();
      };
      SCOPED_TRACE(testing::Message() << "bound " << memory.size_bytes() << " bytes, vocabulary "
                                      << shape.config.vocab_size << ", " << batch.tokens.size()
                                      << " tokens, element of " << SizeBytes(dtype));
      const absl::Status whole = run_within(memory.size_bytes());
      EXPECT_TRUE(whole.ok()) << whole;
      EXPECT_EQ(run_within(memory.size_bytes() * 2 / 5).code(), absl::StatusCode::kInternal);
    }
  }
}

TEST(WorkspaceBytes, GrowsWithEveryCount) {
  const ModelConfig config = ToyConfig();
  const int64_t base = WorkspaceBytes(config, ComputeDtype::kFloat32, 100, 50, 30);
  EXPECT_GT(WorkspaceBytes(config, ComputeDtype::kFloat32, 101, 50, 30), base);
  EXPECT_GE(WorkspaceBytes(config, ComputeDtype::kFloat32, 100, 51, 30), base);
  EXPECT_GE(WorkspaceBytes(config, ComputeDtype::kFloat32, 100, 50, 31), base);
  EXPECT_EQ(base % 64, 0);
}

TEST(HeadChunkRows, BoundsTheLogitsAndStaysUseful) {
  EXPECT_EQ(HeadChunkRows(49152, 10), 10);
  EXPECT_EQ(HeadChunkRows(49152, 100000) % 32, 0);
  EXPECT_LE(HeadChunkRows(49152, 100000) * 49152 * 4, 64 << 20);
  EXPECT_EQ(HeadChunkRows(10'000'000, 100000), 32);
}

}  // namespace
}  // namespace megatrain
