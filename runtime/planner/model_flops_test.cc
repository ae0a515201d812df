#include "runtime/planner/model_flops.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/config/shapes.h"

namespace megatrain {
namespace {

ModelConfig Shape(const char* name) { return ShapeByName(name).value(); }

// A shape whose figures can be done in the head: 2 heads and 1 for keys of 2, d 4, MLP 3.
ModelConfig Small() {
  ModelConfig config;
  config.vocab_size = 10;
  config.hidden_size = 4;
  config.mlp_width = 3;
  config.layer_count = 2;
  config.head_count = 2;
  config.kv_head_count = 1;
  config.head_dim = 2;
  config.layer_uses_window = {false, false};
  return config;
}

// By hand: layers x (d (heads + 2 kv heads) 128 + d^2 + 3 d f) + vocab d.
TEST(MatmulParameterCountTest, KnownShapes) {
  EXPECT_EQ(MatmulParameterCount(Shape("qwen2.5-1.5b")), 28 * 46'792'704LL + 233'373'696);
  EXPECT_EQ(MatmulParameterCount(Shape("qwen2.5-7b")), 28 * 233'046'016LL + 544'997'376);
  EXPECT_EQ(MatmulParameterCount(Shape("qwen2.5-14b")), 48 * 275'251'200LL + 778'567'680);
  EXPECT_EQ(MatmulParameterCount(Shape("qwen2.5-32b")), 64 * 487'587'840LL + 778'567'680);
  EXPECT_EQ(MatmulParameterCount(Shape("qwen2.5-72b")), 80 * 877'658'112LL + 1'245'708'288);
}

TEST(MatmulParameterCountTest, CountsTheTiedMatrixAndActiveExpertsOnly) {
  ModelConfig config = Small();
  EXPECT_EQ(MatmulParameterCount(config), 2 * (4 * 4 * 2 + 4 * 4 + 3 * 4 * 3) + 40);
  config.tied = true;
  EXPECT_EQ(MatmulParameterCount(config), 2 * (32 + 16 + 36) + 40);
  config.moe = {.expert_count = 8, .experts_per_token = 2, .expert_width = 5};
  EXPECT_EQ(MatmulParameterCount(config), 2 * (32 + 16 + 3 * 2 * 5 * 4 + 8 * 4) + 40);
}

// Published figures of other systems on these shapes use the same formula: 14,385 tokens a second
// of the 7B at rows of 1,024 are 619.1 TFLOP/s.
TEST(ModelFlopsTest, SevenBillionAtOneThousand) {
  const std::vector<int64_t> documents(64, 1024);
  const double flops = ModelFlops(Shape("qwen2.5-7b"), documents);
  EXPECT_DOUBLE_EQ(flops, 65536.0 * (6.0 * 7'070'285'824 + 6.0 * 1024 * 3584 * 28));
  EXPECT_NEAR(flops / 65536 * 14385 / 1e12, 619.1, 0.05);
}

TEST(ModelFlopsTest, AttentionGrowsWithTheSquareOfEachDocument) {
  const std::vector<int64_t> documents = {3, 5};
  const double products = 6.0 * 208 * 8;
  EXPECT_DOUBLE_EQ(ModelFlops(Small(), documents), products + 6.0 * (9 + 25) * 4 * 2);
}

TEST(ModelFlopsTest, AWindowCutsLongDocumentsOnly) {
  ModelConfig config = Small();
  config.layer_uses_window = {true, false};
  config.window = 4;
  const std::vector<int64_t> documents = {3, 5};
  const double products = 6.0 * 208 * 8;
  const double windowed = 6.0 * 9 + 12.0 * (5 * 4 - 8);
  EXPECT_DOUBLE_EQ(ModelFlops(config, documents), products + (windowed + 6.0 * 34) * 4);
}

TEST(RecomputeFlopsTest, EachLevelSavesWhatItKeeps) {
  const std::vector<int64_t> documents = {3, 5};
  const ModelConfig config = Small();
  const double rest = 2.0 * 2 * (16 + 24) * 8;  // output, gate and up
  const double projections = 2.0 * 2 * 32 * 8;
  const double attention = 2.0 * 34 * 4 * 2;
  EXPECT_DOUBLE_EQ(RecomputeFlops(config, KeepLevel::kProducts, documents), 0);
  EXPECT_DOUBLE_EQ(RecomputeFlops(config, KeepLevel::kProjections, documents), rest);
  EXPECT_DOUBLE_EQ(RecomputeFlops(config, KeepLevel::kAttention, documents), rest + projections);
  EXPECT_DOUBLE_EQ(RecomputeFlops(config, KeepLevel::kNothing, documents),
                   rest + projections + attention);
}

}  // namespace
}  // namespace megatrain
