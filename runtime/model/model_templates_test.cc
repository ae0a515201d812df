#include "runtime/model/model_templates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "runtime/model/direct_model.h"
#include "runtime/model/workspace_size.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

constexpr int kSeed = 21;

ModelConfig UntiedWithBias() {
  ModelConfig config = ToyConfig();
  config.architecture = "Qwen2ForCausalLM";
  config.model_type = "qwen2";
  config.qkv_bias = true;
  config.tied = false;
  return config;
}

AlignedMemory WorkspaceFor(const ModelConfig& config, ComputeDtype dtype, const RandomBatch& batch,
                           int64_t shift_lines = 0) {
  const auto tokens = static_cast<int64_t>(batch.tokens.size());
  return AlignedMemory(WorkspaceBytes(config, dtype, tokens, tokens,
                                      static_cast<int64_t>(batch.loss_positions.size())),
                       shift_lines);
}

Workspace Whole(const AlignedMemory& memory) {
  return {.data = memory.data(), .size_bytes = memory.size_bytes()};
}

bool SameGradients(const DirectModel& a, const DirectModel& b) {
  const auto& units = a.layout().units;
  for (size_t u = 0; u < units.size(); ++u) {
    if (std::memcmp(a.gradient(static_cast<int>(u)), b.gradient(static_cast<int>(u)),
                    units[u].element_count * sizeof(float)) != 0) {
      return false;
    }
  }
  const int64_t tied_bytes = a.layout().tied ? units[0].tensors[0].element_count * 4 : 0;
  return std::memcmp(a.tied_gradient(), b.tied_gradient(), tied_bytes) == 0;
}

class ModelTemplatesTest : public ::testing::TestWithParam<ComputeDtype> {};

// A gradient is right when it tells how the loss changes: along the gradient's own direction the
// loss's central difference must be its squared norm. (Agreement with transformers tensor by
// tensor: tests/parity.)
TEST(ModelTemplates, GradientPredictsTheLossAlongItself) {
  for (const ModelConfig& config : {ToyConfig(), UntiedWithBias()}) {
    std::mt19937 random(kSeed);
    const RandomBatch batch({9, 1, 14}, config.vocab_size, 1, random);
    const AlignedMemory workspace = WorkspaceFor(config, ComputeDtype::kFloat32, batch);
    DirectModel model(config, ComputeDtype::kFloat32, kSeed);
    ASSERT_TRUE(model.Run(batch.View(), 1.0, Whole(workspace)).ok());
    for (int unit = 1; unit < model.layout().head_unit(); ++unit) {
      const int64_t count = model.layout().units[unit].element_count;
      double squared = 0;
      for (int64_t i = 0; i < count; ++i) {
        squared += std::pow(model.gradient(unit)[i], 2.0);
      }
      const double step = 1e-2 / std::sqrt(squared);
      double losses[2];
      for (const int side : {0, 1}) {
        DirectModel moved(config, ComputeDtype::kFloat32, kSeed);
        auto* weights = const_cast<float*>(static_cast<const float*>(moved.weights(unit)));
        for (int64_t i = 0; i < count; ++i) {
          weights[i] += static_cast<float>((side == 0 ? -1 : 1) * step * model.gradient(unit)[i]);
        }
        const auto result = moved.Evaluate(batch.View(), Whole(workspace));
        ASSERT_TRUE(result.ok());
        losses[side] = result->loss_sum;
      }
      EXPECT_NEAR((losses[1] - losses[0]) / (2 * step) / squared, 1.0, 5e-3) << "unit " << unit;
    }
  }
}

TEST_P(ModelTemplatesTest, BitsDoNotDependOnAddressesOrOnWhatMemoryHeld) {
  for (const ModelConfig& config : {ToyConfig(), UntiedWithBias()}) {
    std::mt19937 random(kSeed);
    const RandomBatch batch({17, 40, 3}, config.vocab_size, 2, random);
    DirectModel first(config, GetParam(), kSeed);
    const AlignedMemory workspace = WorkspaceFor(config, GetParam(), batch);
    const auto want = first.Run(batch.View(), 0.1, Whole(workspace));
    ASSERT_TRUE(want.ok()) << want.status();
    for (const int64_t shift : {1, 2, 3, 7, 63}) {
      DirectModel second(config, GetParam(), kSeed, shift);
      const AlignedMemory moved = WorkspaceFor(config, GetParam(), batch, shift);
      std::memset(moved.data(), 0xFF, moved.size_bytes());  // NaN wherever it were read
      const auto result = second.Run(batch.View(), 0.1, Whole(moved));
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(result->loss_sum, want->loss_sum);
      EXPECT_TRUE(SameGradients(first, second)) << "shift " << shift;
    }
  }
}

TEST_P(ModelTemplatesTest, EvaluationGivesTheTrainingLossBits) {
  const ModelConfig config = ToyConfig();
  std::mt19937 random(kSeed);
  const RandomBatch batch({17, 40}, config.vocab_size, 1, random);
  const AlignedMemory workspace = WorkspaceFor(config, GetParam(), batch);
  DirectModel model(config, GetParam(), kSeed);
  const auto trained = model.Run(batch.View(), 0.1, Whole(workspace));
  const auto evaluated = model.Evaluate(batch.View(), Whole(workspace));
  ASSERT_TRUE(trained.ok() && evaluated.ok());
  EXPECT_EQ(trained->loss_sum, evaluated->loss_sum);
}

// A document's loss, bit for bit, while another of the same length changes beside it.
TEST_P(ModelTemplatesTest, ADocumentsLossIsItsOwn) {
  const ModelConfig config = UntiedWithBias();
  std::mt19937 random(kSeed);
  RandomBatch batch({31, 33, 28}, config.vocab_size, 1, random);
  const auto from = static_cast<int32_t>(batch.offsets[1]);
  const auto to = static_cast<int32_t>(batch.offsets[2]);
  // Only the middle document has losses.
  std::vector<int32_t> positions;
  std::vector<int32_t> targets;
  for (int32_t i = from; i + 1 < to; ++i) {
    positions.push_back(i);
    targets.push_back(batch.tokens[i + 1]);
  }
  batch.loss_positions = positions;
  batch.loss_targets = targets;
  const AlignedMemory workspace = WorkspaceFor(config, GetParam(), batch);
  DirectModel model(config, GetParam(), kSeed);
  const auto want = model.Evaluate(batch.View(), Whole(workspace));
  ASSERT_TRUE(want.ok());
  for (int i = 0; i < 4; ++i) {
    for (size_t t = 0; t < batch.tokens.size(); ++t) {
      if (static_cast<int32_t>(t) < from || static_cast<int32_t>(t) >= to) {
        batch.tokens[t] = static_cast<int32_t>(random() % config.vocab_size);
      }
    }
    const auto result = model.Evaluate(batch.View(), Whole(workspace));
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result->loss_sum, want->loss_sum);
  }
}

TEST_P(ModelTemplatesTest, PackedDocumentsGiveTheSumOfTheirOwnLossesAndGradients) {
  const ModelConfig config = UntiedWithBias();
  const std::vector<int64_t> lengths = {13, 40, 2, 22};
  std::mt19937 random(kSeed);
  const RandomBatch packed(lengths, config.vocab_size, 1, random);
  const AlignedMemory workspace = WorkspaceFor(config, GetParam(), packed);
  DirectModel together(config, GetParam(), kSeed);
  const auto whole = together.Run(packed.View(), 1.0, Whole(workspace));
  ASSERT_TRUE(whole.ok());

  random.seed(kSeed);
  DirectModel apart(config, GetParam(), kSeed);
  double loss = 0;
  for (const int64_t length : lengths) {
    const RandomBatch single({length}, config.vocab_size, 1, random);
    const auto result = apart.Run(single.View(), 1.0, Whole(workspace));
    ASSERT_TRUE(result.ok());
    loss += result->loss_sum;
  }
  const bool fp32 = GetParam() == ComputeDtype::kFloat32;
  EXPECT_NEAR(whole->loss_sum / loss, 1.0, fp32 ? 1e-6 : 1e-3);
  for (int unit = 0; unit <= together.layout().head_unit(); ++unit) {
    double difference = 0;
    double norm = 0;
    for (int64_t i = 0; i < together.layout().units[unit].element_count; ++i) {
      difference += std::pow(together.gradient(unit)[i] - apart.gradient(unit)[i], 2.0);
      norm += std::pow(apart.gradient(unit)[i], 2.0);
    }
    EXPECT_LT(std::sqrt(difference / norm), fp32 ? 2e-6 : 1e-2) << "unit " << unit;
  }
}

TEST_P(ModelTemplatesTest, ABatchWithoutLossAddsNothing) {
  const ModelConfig config = ToyConfig();
  std::mt19937 random(kSeed);
  RandomBatch batch({8}, config.vocab_size, 1, random);
  batch.loss_positions.clear();
  batch.loss_targets.clear();
  const AlignedMemory workspace = WorkspaceFor(config, GetParam(), batch);
  DirectModel model(config, GetParam(), kSeed);
  const DirectModel untouched(config, GetParam(), kSeed);
  const auto result = model.Run(batch.View(), 0.1, Whole(workspace));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->loss_sum, 0.0);
  for (int unit = 0; unit <= model.layout().head_unit(); ++unit) {
    for (int64_t i = 0; i < model.layout().units[unit].element_count; ++i) {
      ASSERT_EQ(model.gradient(unit)[i], 0.0F);
    }
  }
}

TEST_P(ModelTemplatesTest, NamesTheFirstLossThatIsNotFinite) {
  const ModelConfig config = ToyConfig();
  std::mt19937 random(kSeed);
  RandomBatch batch({5, 9}, config.vocab_size, 1, random);
  const AlignedMemory workspace = WorkspaceFor(config, GetParam(), batch);
  DirectModel model(config, GetParam(), kSeed);
  const auto good = model.Evaluate(batch.View(), Whole(workspace));
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(good->first_nonfinite, -1);
  // The second document's first token has a row of NaN; its losses start at index 4. Every logit
  // row has that token as a column, so leave the table's NaN to the embedding alone: untied.
  const ModelConfig untied = UntiedWithBias();
  DirectModel poisoned(untied, GetParam(), kSeed);
  auto* table = static_cast<char*>(const_cast<void*>(poisoned.weights(0)));
  const int64_t row_bytes = untied.hidden_size * SizeBytes(GetParam());
  batch.tokens[5] = 96;
  for (size_t t = 0; t < batch.tokens.size(); ++t) {
    batch.tokens[t] = t == 5 ? 96 : batch.tokens[t] % 96;
  }
  std::memset(table + 96 * row_bytes, 0xFF, row_bytes);
  const auto bad = poisoned.Evaluate(batch.View(), Whole(workspace));
  ASSERT_TRUE(bad.ok());
  EXPECT_EQ(bad->first_nonfinite, 4);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, ModelTemplatesTest,
                         ::testing::Values(ComputeDtype::kFloat32, ComputeDtype::kBfloat16));

TEST(ModelTemplates, BadBatchesAreRefusedByName) {
  const ModelConfig config = ToyConfig();
  std::mt19937 random(kSeed);
  const RandomBatch good({5, 9}, config.vocab_size, 1, random);
  const AlignedMemory workspace = WorkspaceFor(config, ComputeDtype::kFloat32, good);
  DirectModel model(config, ComputeDtype::kFloat32, kSeed);
  const auto message = [&](const RandomBatch& batch) {
    const auto result = model.Evaluate(batch.View(), Whole(workspace));
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(result.status().message());
  };
  RandomBatch batch = good;
  batch.tokens[3] = 97;
  EXPECT_THAT(message(batch), HasSubstr("token 3 of the micro-batch is id 97"));
  batch = good;
  batch.loss_targets[1] = -1;
  EXPECT_THAT(message(batch), HasSubstr("loss target 1 of the micro-batch is id -1"));
  batch = good;
  batch.loss_positions[0] = batch.loss_positions[1];
  EXPECT_THAT(message(batch), HasSubstr("loss position 1 is not between"));
  batch = good;
  batch.offsets.back() = 13;
  EXPECT_THAT(message(batch), HasSubstr("from 0 to the token count 14"));
  batch = good;
  batch.positions.pop_back();
  EXPECT_THAT(message(batch), HasSubstr("13 positions"));
  batch = good;
  batch.loss_targets.pop_back();
  EXPECT_THAT(message(batch), HasSubstr("12 loss positions but 11 targets"));
}

TEST(ModelTemplates, TooLittleWorkspaceIsAnErrorAndTouchesNothingElse) {
  const ModelConfig config = ToyConfig();
  std::mt19937 random(kSeed);
  const RandomBatch batch({50}, config.vocab_size, 1, random);
  const AlignedMemory workspace = WorkspaceFor(config, ComputeDtype::kFloat32, batch);
  DirectModel model(config, ComputeDtype::kFloat32, kSeed);
  const auto result = model.Run(batch.View(), 1.0, {.data = workspace.data(), .size_bytes = 4096});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("workspace exhausted"));
}

TEST(ModelTemplates, RefusesAShapeThatItCannotCompute) {
  ModelConfig config = ToyConfig();
  const ModelLayout layout = MakeModelLayout(config);
  config.architecture = "Gemma2ForCausalLM";
  config.activation = "gelu_pytorch_tanh";
  const auto templates = MakeModelTemplates(config, layout, ComputeDtype::kFloat32);
  EXPECT_EQ(templates.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(templates.status().message()), HasSubstr("gelu_pytorch_tanh"));
}

}  // namespace
}  // namespace megatrain
