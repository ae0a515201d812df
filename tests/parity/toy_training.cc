#include "tests/parity/toy_training.h"

#include <gtest/gtest.h>

#include <random>
#include <utility>

#include "runtime/hoststore/split_float.h"

namespace megatrain {
namespace {

constexpr int kSeed = 41;
constexpr int kSteps = 5;
constexpr int kVocab = 97;
constexpr int kLayers = 4;
constexpr int kDocuments = 6;

bool IsNorm(TensorRole role) {
  return role == TensorRole::kAttentionNorm || role == TensorRole::kMlpNorm ||
         role == TensorRole::kFinalNorm;
}

}  // namespace

ModelConfig ToyModelConfig(ToyFamily family, bool tied) {
  const bool qwen2 = family == ToyFamily::kQwen2;
  ModelConfig config;
  config.architecture = qwen2 ? "Qwen2ForCausalLM" : "LlamaForCausalLM";
  config.model_type = qwen2 ? "qwen2" : "llama";
  config.vocab_size = kVocab;
  config.hidden_size = 64;
  config.mlp_width = 88;
  config.layer_count = kLayers;
  config.head_count = 8;
  config.kv_head_count = 4;
  config.head_dim = 16;
  config.max_positions = 64;
  config.qkv_bias = qwen2;
  config.tied = tied;
  config.layer_uses_window.assign(kLayers, false);
  return config;
}

void FillToyWeights(TrainingRig& rig) {
  std::mt19937 random(kSeed);
  std::normal_distribution<float> normal;
  for (int unit = 0; unit < rig.store().unit_count(); ++unit) {
    const auto access = rig.store().BeginAccess(unit);
    for (const TensorLayout& tensor : rig.layout().units[unit].tensors) {
      for (int64_t i = 0; i < tensor.element_count; ++i) {
        const float noise = normal(random);
        const SplitFloat split = Split(IsNorm(tensor.role) ? 1.0F + 0.1F * noise : 0.15F * noise);
        rig.store().hi(unit)[tensor.offset_elements + i] = split.hi;
        rig.store().lo(unit)[tensor.offset_elements + i] = split.lo;
      }
    }
  }
}

std::vector<std::vector<Document>> RandomSteps(int count) {
  std::mt19937 random(kSeed);
  std::vector<std::vector<Document>> steps(count);
  for (auto& documents : steps) {
    for (int i = 0; i < kDocuments; ++i) {
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

std::unique_ptr<TrainingRig> MakeToyRig(const ModelConfig& config, const RigOptions& options,
                                        ComputeBackend& backend) {
  auto rig = TrainingRig::Create(config, options, backend);
  EXPECT_TRUE(rig.ok()) << rig.status();
  if (!rig.ok()) {
    return nullptr;
  }
  FillToyWeights(**rig);
  return *std::move(rig);
}

StepInput ToyStep(const std::vector<OwnedMicroBatch>& micro_batches) {
  std::vector<MicroBatch> views = Views(micro_batches);
  const int64_t loss_tokens = LossTokenCount(views);
  return {.micro_batches = std::move(views),
          .loss_token_count = loss_tokens,
          .optimizer = {.learning_rate = 1e-3, .weight_decay = 0.1},
          .max_gradient_norm = 0.5};
}

std::vector<StepResult> TrainToy(TrainingRig& rig, const std::vector<std::vector<Document>>& steps,
                                 const TrainingPlan& plan) {
  StepPipeline& pipeline = rig.pipeline();
  std::vector<std::vector<OwnedMicroBatch>> micro_batches;
  for (const auto& documents : steps) {
    micro_batches.push_back(Split(documents, plan.micro_batches));
  }
  std::vector<StepResult> results;
  const auto take = [&] {
    auto result = pipeline.WaitStep();
    EXPECT_TRUE(result.ok()) << result.status();
    results.push_back(std::move(result).value_or(StepResult()));
  };
  int waiting = 0;
  for (const auto& step : micro_batches) {
    const absl::Status status = pipeline.SubmitStep(ToyStep(step));
    EXPECT_TRUE(status.ok()) << status;
    if (!status.ok()) {
      return results;
    }
    for (++waiting; waiting > plan.steps_ahead; --waiting) {
      take();
    }
  }
  for (; waiting > 0; --waiting) {
    take();
  }
  const absl::Status status = pipeline.Drain();
  EXPECT_TRUE(status.ok()) << status;
  return results;
}

Outcome TrainedOutcome(TrainingRig& rig, const std::vector<std::vector<Document>>& steps,
                       const TrainingPlan& plan) {
  Outcome outcome;
  const absl::Status status = rig.Start();
  EXPECT_TRUE(status.ok()) << status;
  if (!status.ok()) {
    return outcome;
  }
  for (const StepResult& result : TrainToy(rig, steps, plan)) {
    outcome.losses.push_back(result.loss);
    outcome.norms.push_back(result.gradient_norm);
  }
  return outcome;
}

Outcome ToyOutcome(const ModelConfig& config, const RigOptions& options, ComputeBackend& backend,
                   const TrainingPlan& plan) {
  const auto rig = MakeToyRig(config, options, backend);
  if (rig == nullptr) {
    return {};
  }
  Outcome outcome = TrainedOutcome(*rig, RandomSteps(kSteps), plan);
  outcome.state = rig->StateBytes();
  return outcome;
}

}  // namespace megatrain
