#include "runtime/model/cuda_templates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "runtime/model/cuda_model_for_test.h"
#include "runtime/model/direct_model.h"
#include "runtime/model/workspace_size.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

constexpr int kSeed = 21;
constexpr MicroBatchLimits kLimits = {.tokens = 2304, .document_tokens = 1024, .documents = 32};
constexpr KeepLevel kKeepingLevels[] = {KeepLevel::kAttention, KeepLevel::kProjections,
                                        KeepLevel::kProducts, KeepLevel::kAll};

// Heads of 16, which cuDNN takes in bf16; ToyConfig's heads of 8 it does not.
ModelConfig UntiedWithBias() {
  ModelConfig config = ToyConfig();
  config.architecture = "Qwen2ForCausalLM";
  config.model_type = "qwen2";
  config.vocab_size = 203;
  config.hidden_size = 72;
  config.mlp_width = 136;
  config.head_count = 8;
  config.kv_head_count = 4;
  config.head_dim = 16;
  config.qkv_bias = true;
  config.tied = false;
  config.rope.theta = 1e6;
  return config;
}

// More rows of logits than the head takes at once, and a hidden size above the MLP's.
ModelConfig Medium() {
  ModelConfig config = ToyConfig();
  config.vocab_size = 1000;
  config.hidden_size = 512;
  config.mlp_width = 320;
  config.head_count = 8;
  config.kv_head_count = 2;
  config.head_dim = 64;
  config.rope = {.kind = RopeKind::kLlama3,
                 .name = "llama3",
                 .theta = 500000.0,
                 .factor = 32.0,
                 .low_frequency_factor = 1.0,
                 .high_frequency_factor = 4.0,
                 .original_max_positions = 256};
  return config;
}

struct Case {
  ModelConfig config;
  std::vector<int64_t> lengths;
};

std::vector<Case> Cases() {
  return {{ToyConfig(), {17, 40, 1, 3}},
          {UntiedWithBias(), {33, 200, 128, 1}},
          {Medium(), {1000, 77, 640, 511}},
          {Medium(), {512, 512, 512}}};  // for which attention has other plans
}

RandomBatch BatchOf(const Case& shape, int loss_every) {
  std::mt19937 random(kSeed);
  return RandomBatch(shape.lengths, shape.config.vocab_size, loss_every, random);
}

// A run of the CPU templates.
class Reference {
 public:
  Reference(const ModelConfig& config, ComputeDtype dtype, const RandomBatch& batch)
      : model_(config, dtype, kSeed) {
    const auto tokens = static_cast<int64_t>(batch.tokens.size());
    const AlignedMemory workspace(WorkspaceBytes(config, dtype, tokens, tokens, tokens));
    const auto result = model_.Run(
        batch.View(), 0.1, {.data = workspace.data(), .size_bytes = workspace.size_bytes()});
    EXPECT_TRUE(result.ok()) << result.status();
    result_ = result.value_or(HeadResult());
  }

  const DirectModel& model() const { return model_; }
  const HeadResult& result() const { return result_; }

 private:
  DirectModel model_;
  HeadResult result_;
};

double RelativeError(const float* actual, const float* expected, int64_t count) {
  double difference = 0;
  double norm = 0;
  for (int64_t i = 0; i < count; ++i) {
    difference += std::pow(static_cast<double>(actual[i]) - expected[i], 2.0);
    norm += std::pow(static_cast<double>(expected[i]), 2.0);
  }
  EXPECT_GT(norm, 0);
  return std::sqrt(difference / norm);
}

void ExpectGradientsNear(CudaModelForTest& model, const DirectModel& reference, double tolerance) {
  const ModelLayout& layout = reference.layout();
  for (int unit = 0; unit <= layout.head_unit(); ++unit) {
    const std::vector<float> gradient = model.Gradient(unit);
    for (const TensorLayout& tensor : layout.units[unit].tensors) {
      const int64_t at = tensor.offset_elements;
      EXPECT_LT(RelativeError(&gradient[at], reference.gradient(unit) + at, tensor.element_count),
                tolerance)
          << tensor.name;
    }
  }
  if (layout.tied) {
    const std::vector<float> gradient = model.TiedGradient();
    EXPECT_LT(RelativeError(gradient.data(), reference.tied_gradient(),
                            static_cast<int64_t>(gradient.size())),
              tolerance);
  }
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void ExpectSameBits(CudaModelForTest& a, CudaModelForTest& b) {
  EXPECT_TRUE(SameBits(a.LastBoundary(), b.LastBoundary()));
  for (int unit = 0; unit <= a.layout().head_unit(); ++unit) {
    EXPECT_TRUE(SameBits(a.Gradient(unit), b.Gradient(unit))) << "unit " << unit;
  }
  EXPECT_TRUE(SameBits(a.TiedGradient(), b.TiedGradient()));
}

class CudaTemplatesTest : public ::testing::TestWithParam<ComputeDtype> {
 protected:
  // Relative, of a tensor's norm. In bf16 every activation is rounded, which the CPU does not:
  // exact arithmetic with those roundings alone is up to 1.9e-2 off, at the bias of the keys.
  double Tolerance() const { return GetParam() == ComputeDtype::kFloat32 ? 1e-5 : 3e-2; }
};

TEST_P(CudaTemplatesTest, GiveTheCpusLossAndGradients) {
  for (const Case& shape : Cases()) {
    const RandomBatch batch = BatchOf(shape, 1);
    const Reference reference(shape.config, GetParam(), batch);
    CudaModelForTest model(shape.config, GetParam(), kLimits, reference.model());
    const auto result = model.Run(batch.View(), 0.1);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_NEAR(result->loss_sum / reference.result().loss_sum, 1, Tolerance() / 10);
    EXPECT_EQ(result->first_nonfinite, -1);
    ExpectGradientsNear(model, reference.model(), Tolerance());
  }
}

TEST_P(CudaTemplatesTest, FastAttentionIsAsNear) {
  const Case shape = {UntiedWithBias(), {33, 200, 128, 1}};
  const RandomBatch batch = BatchOf(shape, 2);
  const Reference reference(shape.config, GetParam(), batch);
  CudaModelForTest model(shape.config, GetParam(), kLimits, reference.model(),
                         {.attention = AttentionMode::kFast});
  const auto result = model.Run(batch.View(), 0.1);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_NEAR(result->loss_sum / reference.result().loss_sum, 1, Tolerance() / 10);
  ExpectGradientsNear(model, reference.model(), Tolerance());
}

// Every buffer elsewhere, and what forward kept in place of what backward computed again.
TEST_P(CudaTemplatesTest, BitsDoNotDependOnWhatIsKeptOrOnAddresses) {
  for (const Case& shape : Cases()) {
    const RandomBatch batch = BatchOf(shape, 2);
    const DirectModel weights(shape.config, GetParam(), kSeed);
    CudaModelForTest first(shape.config, GetParam(), kLimits, weights);
    const auto want = first.Run(batch.View(), 0.1);
    ASSERT_TRUE(want.ok()) << want.status();
    int64_t shift_bytes = 0;
    for (const KeepLevel level : kKeepingLevels) {
      shift_bytes += 64;
      CudaModelForTest second(shape.config, GetParam(), kLimits, weights,
                              {.keep = level, .shift_bytes = shift_bytes});
      const auto result = second.Run(batch.View(), 0.1);
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(result->loss_sum, want->loss_sum);
      ExpectSameBits(first, second);
    }
  }
}

// What lies between tensors is nobody's.
void ExpectSameGradients(CudaModelForTest& a, CudaModelForTest& b) {
  for (int unit = 0; unit <= a.layout().head_unit(); ++unit) {
    const std::vector<float> first = a.Gradient(unit);
    const std::vector<float> second = b.Gradient(unit);
    for (const TensorLayout& tensor : a.layout().units[unit].tensors) {
      const auto begin = first.begin() + tensor.offset_elements;
      EXPECT_TRUE(
          std::equal(begin, begin + tensor.element_count, second.begin() + tensor.offset_elements))
          << tensor.name;
    }
  }
  EXPECT_EQ(a.TiedGradient(), b.TiedGradient());
}

TEST_P(CudaTemplatesTest, FirstGradientsMayBeWrittenOverWhatWasThere) {
  for (const Case& shape : Cases()) {
    RandomBatch batch = BatchOf(shape, 2);
    for (const bool has_loss : {true, false}) {
      if (!has_loss) {
        batch.loss_positions.clear();
        batch.loss_targets.clear();
      }
      const DirectModel weights(shape.config, GetParam(), kSeed);
      CudaModelForTest added(shape.config, GetParam(), kLimits, weights);
      CudaModelForTest written(shape.config, GetParam(), kLimits, weights,
                               {.overwrites_gradients = true});
      ASSERT_TRUE(added.Run(batch.View(), 0.1).ok());
      ASSERT_TRUE(written.Run(batch.View(), 0.1).ok());
      ExpectSameGradients(added, written);
    }
  }
}

TEST_P(CudaTemplatesTest, GradientsAreAddedToAndBatchesMayFollowOneAnother) {
  const Case shape = {UntiedWithBias(), {33, 200}};
  const Case other = {shape.config, {7, 7, 7, 90, 1}};
  const RandomBatch batch = BatchOf(shape, 1);
  const RandomBatch between = BatchOf(other, 1);
  const DirectModel weights(shape.config, GetParam(), kSeed);
  CudaModelForTest once(shape.config, GetParam(), kLimits, weights);
  CudaModelForTest twice(shape.config, GetParam(), kLimits, weights);
  ASSERT_TRUE(once.Run(batch.View(), 0.1).ok());
  ASSERT_TRUE(twice.Run(batch.View(), 0.1).ok());
  ASSERT_TRUE(twice.Evaluate(between.View()).ok());
  ASSERT_TRUE(twice.Run(batch.View(), 0.1).ok());
  for (int unit = 0; unit <= once.layout().head_unit(); ++unit) {
    std::vector<float> doubled = once.Gradient(unit);
    for (float& value : doubled) {
      value *= 2;
    }
    const std::vector<float> gradient = twice.Gradient(unit);
    EXPECT_LT(RelativeError(gradient.data(), doubled.data(), static_cast<int64_t>(doubled.size())),
              1e-6)
        << "unit " << unit;
  }
}

TEST_P(CudaTemplatesTest, PackedDocumentsGiveTheSumOfTheirOwnLossesAndGradients) {
  const Case packed = {UntiedWithBias(), {13, 140, 2, 71}};
  const RandomBatch batch = BatchOf(packed, 1);
  const DirectModel weights(packed.config, GetParam(), kSeed);
  CudaModelForTest together(packed.config, GetParam(), kLimits, weights);
  const auto whole = together.Run(batch.View(), 1.0);
  ASSERT_TRUE(whole.ok()) << whole.status();

  CudaModelForTest apart(packed.config, GetParam(), kLimits, weights);
  std::mt19937 random(kSeed);
  double loss = 0;
  for (const int64_t length : packed.lengths) {
    const RandomBatch single({length}, packed.config.vocab_size, 1, random);
    const auto result = apart.Run(single.View(), 1.0);
    ASSERT_TRUE(result.ok()) << result.status();
    loss += result->loss_sum;
  }
  const bool fp32 = GetParam() == ComputeDtype::kFloat32;
  EXPECT_NEAR(whole->loss_sum / loss, 1.0, fp32 ? 1e-6 : 1e-3);
  for (int unit = 0; unit <= together.layout().head_unit(); ++unit) {
    const std::vector<float> sum = apart.Gradient(unit);
    EXPECT_LT(
        RelativeError(together.Gradient(unit).data(), sum.data(), static_cast<int64_t>(sum.size())),
        fp32 ? 4e-6 : 1e-2)
        << "unit " << unit;
  }
}

TEST_P(CudaTemplatesTest, EvaluationGivesTheTrainingLossBits) {
  for (const Case& shape : Cases()) {
    const RandomBatch batch = BatchOf(shape, 1);
    const DirectModel weights(shape.config, GetParam(), kSeed);
    CudaModelForTest model(shape.config, GetParam(), kLimits, weights);
    const auto trained = model.Run(batch.View(), 0.1);
    const auto evaluated = model.Evaluate(batch.View());
    ASSERT_TRUE(trained.ok() && evaluated.ok());
    EXPECT_EQ(trained->loss_sum, evaluated->loss_sum);
  }
}

TEST_P(CudaTemplatesTest, ABatchWithoutLossAddsNothing) {
  const Case shape = {ToyConfig(), {8, 30}};
  RandomBatch batch = BatchOf(shape, 1);
  batch.loss_positions.clear();
  batch.loss_targets.clear();
  const DirectModel weights(shape.config, GetParam(), kSeed);
  CudaModelForTest model(shape.config, GetParam(), kLimits, weights);
  const auto result = model.Run(batch.View(), 0.1);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->loss_sum, 0.0);
  EXPECT_EQ(result->first_nonfinite, -1);
  for (int unit = 0; unit <= model.layout().head_unit(); ++unit) {
    for (const float value : model.Gradient(unit)) {
      ASSERT_EQ(value, 0.0F) << "unit " << unit;
    }
  }
}

// A row of NaN in the token table, met by the second document's first token alone: its losses
// start at index 32. The model is untied, so that no column of logits is NaN for the others.
TEST_P(CudaTemplatesTest, NamesTheFirstLossThatIsNotFinite) {
  const Case shape = {UntiedWithBias(), {33, 60}};
  RandomBatch batch = BatchOf(shape, 1);
  const auto poisoned = static_cast<int32_t>(shape.config.vocab_size - 1);
  for (int32_t& token : batch.tokens) {
    token %= poisoned;
  }
  batch.tokens[33] = poisoned;
  const DirectModel weights(shape.config, GetParam(), kSeed);
  auto* table = static_cast<char*>(const_cast<void*>(weights.weights(0)));
  const int64_t row_bytes = shape.config.hidden_size * SizeBytes(GetParam());
  std::memset(table + poisoned * row_bytes, 0xFF, row_bytes);
  CudaModelForTest model(shape.config, GetParam(), kLimits, weights);
  const auto result = model.Evaluate(batch.View());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->first_nonfinite, 32);
  EXPECT_FALSE(std::isfinite(result->loss_sum));
}

TEST_P(CudaTemplatesTest, TooLittleWorkspaceIsAnError) {
  const Case shape = {Medium(), {1000, 77, 640, 511}};
  const RandomBatch batch = BatchOf(shape, 1);
  const DirectModel weights(shape.config, GetParam(), kSeed);
  CudaModelForTest model(shape.config, GetParam(), kLimits, weights,
                         {.missing_workspace_bytes = 8 << 20});
  const auto result = model.Run(batch.View(), 1.0);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("workspace exhausted"));
}

INSTANTIATE_TEST_SUITE_P(Dtypes, CudaTemplatesTest,
                         ::testing::Values(ComputeDtype::kFloat32, ComputeDtype::kBfloat16),
                         [](const auto& info) { return std::string(DtypeName(info.param)); });

TEST(CudaTemplates, BadBatchesAreRefusedBeforeAStep) {
  const ModelConfig config = ToyConfig();
  const auto templates = MakeCudaTemplates(config, MakeModelLayout(config), ComputeDtype::kBfloat16,
                                           AttentionMode::kFast,
                                           {.tokens = 64, .document_tokens = 32, .documents = 4});
  ASSERT_TRUE(templates.ok()) << templates.status();
  std::mt19937 random(kSeed);
  RandomBatch batch({5, 9}, config.vocab_size, 1, random);
  EXPECT_TRUE((*templates)->Prepare(batch.View()).ok());
  batch.tokens[3] = 97;
  const absl::Status status = (*templates)->Prepare(batch.View());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("token 3 of the micro-batch is id 97"));
}

TEST(CudaTemplates, RefuseAShapeThatTheyCannotCompute) {
  ModelConfig config = ToyConfig();
  const ModelLayout layout = MakeModelLayout(config);
  config.hidden_size = 50;
  const auto templates =
      MakeCudaTemplates(config, layout, ComputeDtype::kBfloat16, AttentionMode::kFast, kLimits);
  EXPECT_EQ(templates.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(templates.status().message()), HasSubstr("hidden_size = 50"));
}

}  // namespace
}  // namespace megatrain
