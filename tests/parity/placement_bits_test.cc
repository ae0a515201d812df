// The same training, bit for bit, wherever weights and gradients lie and whoever updates them.

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "runtime/hoststore/split_float.h"
#include "tests/parity/documents.h"
#include "tests/parity/training_rig.h"

namespace megatrain {
namespace {

constexpr int kSeed = 41;
constexpr int kSteps = 5;
constexpr int64_t kVocab = 97;

ModelConfig Qwen2Config(bool tied) {
  ModelConfig config;
  config.architecture = "Qwen2ForCausalLM";
  config.model_type = "qwen2";
  config.vocab_size = kVocab;
  config.hidden_size = 48;
  config.mlp_width = 80;
  config.layer_count = 4;
  config.head_count = 6;
  config.kv_head_count = 2;
  config.head_dim = 8;
  config.max_positions = 64;
  config.qkv_bias = true;
  config.tied = tied;
  config.layer_uses_window.assign(4, false);
  return config;
}

void FillWeights(TrainingRig& rig) {
  std::mt19937 random(kSeed);
  std::normal_distribution<float> normal;
  for (size_t unit = 0; unit < rig.layout().units.size(); ++unit) {
    const auto access = rig.store().BeginAccess(static_cast<int>(unit));
    for (const TensorLayout& tensor : rig.layout().units[unit].tensors) {
      const bool matrix = tensor.shape.size() == 2;
      for (int64_t i = 0; i < tensor.element_count; ++i) {
        const float value = matrix ? 0.15F * normal(random) : 1.0F + 0.1F * normal(random);
        const SplitFloat split = Split(value);
        rig.store().hi(static_cast<int>(unit))[tensor.offset_elements + i] = split.hi;
        rig.store().lo(static_cast<int>(unit))[tensor.offset_elements + i] = split.lo;
      }
    }
  }
}

std::vector<std::vector<Document>> RandomSteps() {
  std::mt19937 random(kSeed);
  std::vector<std::vector<Document>> steps(kSteps);
  for (auto& documents : steps) {
    for (int i = 0; i < 6; ++i) {
      Document document;
      const int length = 2 + static_cast<int>(random() % 30);
      for (int t = 0; t < length; ++t) {
        document.tokens.push_back(static_cast<int32_t>(random() % kVocab));
        document.trained.push_back(t + 1 == length || random() % 2 == 0 ? 1 : 0);
      }
      documents.push_back(document);
    }
  }
  return steps;
}

struct Outcome {
  std::vector<double> losses;
  std::vector<double> norms;
  std::string state;

  bool operator==(const Outcome&) const = default;
};

// Submits each step before the one before it has been taken, so that updates overlap the forward.
Outcome Train(const ModelConfig& config, const RigOptions& options) {
  Outcome outcome;
  auto rig = TrainingRig::Create(config, options);
  EXPECT_TRUE(rig.ok()) << rig.status();
  FillWeights(**rig);
  EXPECT_TRUE((*rig)->Start().ok());
  StepPipeline& pipeline = (*rig)->pipeline();
  std::vector<std::vector<OwnedMicroBatch>> steps;
  for (const auto& documents : RandomSteps()) {
    steps.push_back(Split(documents, 3));
  }
  const auto take = [&] {
    const auto result = pipeline.WaitStep();
    EXPECT_TRUE(result.ok()) << result.status();
    outcome.losses.push_back(result->loss);
    outcome.norms.push_back(result->gradient_norm);
  };
  for (size_t step = 0; step < steps.size(); ++step) {
    const std::vector<MicroBatch> views = Views(steps[step]);
    EXPECT_TRUE(pipeline
                    .SubmitStep({.micro_batches = views,
                                 .loss_token_count = LossTokenCount(views),
                                 .optimizer = {.learning_rate = 1e-3, .weight_decay = 0.1},
                                 .max_gradient_norm = 0.5})
                    .ok());
    if (step > 0) {
      take();
    }
  }
  take();
  EXPECT_TRUE(pipeline.Drain().ok());
  outcome.state = (*rig)->StateBytes();
  return outcome;
}

struct Case {
  bool tied;
  ComputeDtype dtype;
};

class PlacementBits : public ::testing::TestWithParam<Case> {};

TEST_P(PlacementBits, NothingDependsOnSlotsThreadsOrderOrResidence) {
  const ModelConfig config = Qwen2Config(GetParam().tied);
  const Outcome want = Train(config, {.dtype = GetParam().dtype, .resident = true});
  ASSERT_EQ(want.losses.size(), static_cast<size_t>(kSteps));
  EXPECT_TRUE(std::isfinite(want.losses.back()));
  EXPECT_NE(want.losses.front(), want.losses.back());
  for (const MicroBatchOrder order :
       {MicroBatchOrder::kLayerMajor, MicroBatchOrder::kMicroBatchMajor}) {
    for (const int slots : {1, 2, 3}) {
      for (const int threads : {1, 2}) {
        const Outcome got = Train(config, {.dtype = GetParam().dtype,
                                           .order = order,
                                           .slots = slots,
                                           .optimizer_threads = threads});
        EXPECT_EQ(got.losses, want.losses);
        EXPECT_EQ(got.norms, want.norms);
        EXPECT_TRUE(got == want) << "order " << static_cast<int>(order) << ", " << slots
                                 << " slots, " << threads << " optimizer threads";
      }
    }
    EXPECT_TRUE(Train(config, {.dtype = GetParam().dtype, .order = order, .resident = true}) ==
                want)
        << "resident, order " << static_cast<int>(order);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, PlacementBits,
                         ::testing::Values(Case{true, ComputeDtype::kFloat32},
                                           Case{false, ComputeDtype::kFloat32},
                                           Case{true, ComputeDtype::kBfloat16},
                                           Case{false, ComputeDtype::kBfloat16}));

}  // namespace
}  // namespace megatrain
