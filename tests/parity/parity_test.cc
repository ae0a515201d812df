// The engine against transformers and torch: toy models of every family, the real pipeline.

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/model_io/load_model.h"
#include "runtime/ops/rope.h"
#include "tests/parity/documents.h"
#include "tests/parity/reference_case.h"
#include "tests/parity/training_rig.h"

namespace megatrain {
namespace {

// Runs the script once for all tests: importing torch takes longer than all of them.
const std::string& ReferenceFolder() {
  static const std::string* const folder = [] {
    auto* path = new std::string(::testing::TempDir() + "/reference");
    if (!RunPython("tests/parity/reference.py '" + *path + "'")) {
      path->clear();
    }
    return path;
  }();
  return *folder;
}

std::unique_ptr<ReferenceCase> OpenCase(const std::string& name) {
  EXPECT_FALSE(ReferenceFolder().empty()) << "reference.py failed: its messages are above";
  auto reference = ReferenceCase::Open(ReferenceFolder() + "/" + name);
  EXPECT_TRUE(reference.ok()) << reference.status();
  return reference.ok() ? *std::move(reference) : nullptr;
}

std::unique_ptr<TrainingRig> LoadRig(const ReferenceCase& reference, const RigOptions& options) {
  auto rig = TrainingRig::Create(reference.model().config(), options);
  EXPECT_TRUE(rig.ok()) << rig.status();
  absl::Status status = LoadModel(reference.model(), (*rig)->layout(), (*rig)->store());
  EXPECT_TRUE(status.ok()) << status;
  status = (*rig)->Start();
  EXPECT_TRUE(status.ok()) << status;
  return *std::move(rig);
}

// Trains the reference's steps, each in `micro_batch_count` micro-batches.
std::vector<StepResult> Train(const ReferenceCase& reference, TrainingRig& rig, size_t step_count,
                              int micro_batch_count) {
  std::vector<StepResult> results;
  for (size_t step = 0; step < step_count; ++step) {
    const auto owned = Split(reference.steps()[step], micro_batch_count);
    const std::vector<MicroBatch> views = Views(owned);
    const absl::Status status = rig.pipeline().SubmitStep(
        {.micro_batches = views,
         .loss_token_count = LossTokenCount(views),
         .optimizer = {.learning_rate = reference.expected()["learning_rate"].get<double>(),
                       .weight_decay = 0.1},
         .max_gradient_norm = reference.expected()["max_gradient_norm"].get<double>()});
    EXPECT_TRUE(status.ok()) << status;
    auto result = rig.pipeline().WaitStep();
    EXPECT_TRUE(result.ok()) << result.status();
    if (!result.ok()) {
      break;
    }
    EXPECT_TRUE(result->finite);
    results.push_back(*std::move(result));
  }
  EXPECT_TRUE(rig.pipeline().Drain().ok());
  return results;
}

double Norm(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) {
    sum += value * value;
  }
  return std::sqrt(sum);
}

std::vector<double> Difference(std::span<const double> a, std::span<const double> b) {
  std::vector<double> difference(a.size());
  for (size_t i = 0; i < a.size(); ++i) {
    difference[i] = a[i] - b[i];
  }
  return difference;
}

double RelativeError(std::span<const double> ours, std::span<const double> reference) {
  return Norm(Difference(ours, reference)) / Norm(reference);
}

// Calls body(unit, tensor) for every tensor.
template <typename Body>
void ForEachTensor(const ModelLayout& layout, Body body) {
  for (size_t unit = 0; unit < layout.units.size(); ++unit) {
    for (const TensorLayout& tensor : layout.units[unit].tensors) {
      body(static_cast<int>(unit), tensor);
    }
  }
}

// Of the first step, tensor by tensor, and the global norm of them all.
void ExpectGradients(const ReferenceCase& reference, TrainingRig& rig, double tolerance) {
  ForEachTensor(rig.layout(), [&](int unit, const TensorLayout& tensor) {
    const auto want = reference.Tensor("gradient/" + tensor.name);
    ASSERT_TRUE(want.ok()) << want.status();
    EXPECT_LE(RelativeError(rig.Gradient(unit, tensor), *want), tolerance) << tensor.name;
  });
}

double GradientPlaneNorm(TrainingRig& rig) {
  double squared = 0;
  ForEachTensor(rig.layout(), [&](int unit, const TensorLayout& tensor) {
    squared += std::pow(Norm(rig.Gradient(unit, tensor)), 2);
  });
  return std::sqrt(squared);
}

class Float32Parity : public ::testing::TestWithParam<std::string> {};

TEST_P(Float32Parity, LossNormAndGradientsForAnyNumberOfMicroBatches) {
  const auto reference = OpenCase(GetParam());
  ASSERT_NE(reference, nullptr);
  const double loss = reference->expected()["losses"][0].get<double>();
  const double norm = reference->expected()["norms"][0].get<double>();
  for (const int micro_batches : {1, 2, 8}) {  // 8 documents: packed, and each by itself
    SCOPED_TRACE(micro_batches);
    const auto rig = LoadRig(*reference, {});
    const std::vector<StepResult> results = Train(*reference, *rig, 1, micro_batches);
    ASSERT_EQ(results.size(), 1U);
    EXPECT_NEAR(results[0].loss / loss, 1.0, 1e-6);
    EXPECT_NEAR(results[0].gradient_norm / norm, 1.0, 1e-6);
    EXPECT_NEAR(results[0].gradient_norm / GradientPlaneNorm(*rig), 1.0, 1e-6);
    ExpectGradients(*reference, *rig, 1e-5);
  }
}

TEST_P(Float32Parity, TwentyAdamWStepsWithClipping) {
  const auto reference = OpenCase(GetParam());
  ASSERT_NE(reference, nullptr);
  for (const int micro_batches : {1, 3}) {
    SCOPED_TRACE(micro_batches);
    const auto rig = LoadRig(*reference, {});
    const auto untrained = LoadRig(*reference, {});
    const std::vector<StepResult> results = Train(*reference, *rig, 20, micro_batches);
    ASSERT_EQ(results.size(), 20U);
    for (size_t step = 0; step < results.size(); ++step) {
      EXPECT_NEAR(results[step].loss / reference->expected()["losses"][step].get<double>(), 1.0,
                  1e-5);
      EXPECT_NEAR(results[step].gradient_norm / reference->expected()["norms"][step].get<double>(),
                  1.0, 1e-4);
      EXPECT_LT(results[step].clip_coefficient, 1.0) << "the case is meant to clip";
    }
    ForEachTensor(rig->layout(), [&](int unit, const TensorLayout& tensor) {
      const auto want = reference->Tensor("final/" + tensor.name);
      ASSERT_TRUE(want.ok()) << want.status();
      const std::vector<double> before = untrained->Weights(unit, tensor);
      EXPECT_LE(
          RelativeError(Difference(rig->Weights(unit, tensor), before), Difference(*want, before)),
          1e-3)
          << tensor.name;
    });
  }
}

TEST_P(Float32Parity, EvaluationOfPackedDocumentsIsThatOfEachByItself) {
  const auto reference = OpenCase(GetParam());
  ASSERT_NE(reference, nullptr);
  const auto rig = LoadRig(*reference, {});
  const auto packed = Split(reference->steps()[0], 1);
  const auto single = Split(reference->steps()[0], 8);
  const auto together = rig->pipeline().Evaluate(Views(packed));
  const auto apart = rig->pipeline().Evaluate(Views(single));
  ASSERT_TRUE(together.ok() && apart.ok());
  EXPECT_NEAR(*together / *apart, 1.0, 1e-7);
  const double mean = *together / static_cast<double>(LossTokenCount(Views(packed)));
  EXPECT_NEAR(mean / reference->expected()["losses"][0].get<double>(), 1.0, 1e-6);
}

TEST_P(Float32Parity, RotaryFrequenciesHaveTransformersBits) {
  const auto reference = OpenCase(GetParam());
  ASSERT_NE(reference, nullptr);
  const ModelConfig& config = reference->model().config();
  EXPECT_EQ(InverseFrequencies(config.rope, config.head_dim),
            reference->expected()["inverse_frequencies"].get<std::vector<float>>());
}

INSTANTIATE_TEST_SUITE_P(Families, Float32Parity,
                         ::testing::Values("llama_tied", "llama_untied_llama3",
                                           "llama_untied_linear", "qwen2_tied", "qwen2_untied"),
                         [](const auto& info) { return info.param; });

class Bfloat16Parity : public ::testing::TestWithParam<std::string> {};

TEST_P(Bfloat16Parity, LossAndGradientsOfTheSameBfloat16Weights) {
  const auto reference = OpenCase(GetParam());
  ASSERT_NE(reference, nullptr);
  for (const int micro_batches : {1, 8}) {
    SCOPED_TRACE(micro_batches);
    const auto rig = LoadRig(*reference, {.dtype = ComputeDtype::kBfloat16});
    const std::vector<StepResult> results = Train(*reference, *rig, 1, micro_batches);
    ASSERT_EQ(results.size(), 1U);
    EXPECT_NEAR(results[0].loss / reference->expected()["losses"][0].get<double>(), 1.0, 2e-3);
    ExpectGradients(*reference, *rig, 2e-2);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Bfloat16Parity, ::testing::Values("llama_bf16", "qwen2_bf16"),
                         [](const auto& info) { return info.param; });

// A hundred steps at learning rate 1e-5 move the master weights where torch's fp32 weights move,
// although bf16 weights of this size would mostly stand still.
TEST(SlowTraining, MovesTheMasterWhereverTheReferenceMoves) {
  const auto reference = OpenCase("qwen2_slow");
  ASSERT_NE(reference, nullptr);
  const auto rig = LoadRig(*reference, {.dtype = ComputeDtype::kBfloat16});
  const auto untrained = LoadRig(*reference, {.dtype = ComputeDtype::kBfloat16});
  ASSERT_EQ(Train(*reference, *rig, 100, 1).size(), 100U);
  ForEachTensor(rig->layout(), [&](int unit, const TensorLayout& tensor) {
    const auto want = reference->Tensor("final/" + tensor.name);
    ASSERT_TRUE(want.ok()) << want.status();
    const std::vector<double> before = untrained->Weights(unit, tensor);
    const std::vector<double> after = rig->Weights(unit, tensor);
    int64_t moved_there = 0;
    int64_t moved_here_too = 0;
    for (size_t i = 0; i < before.size(); ++i) {
      if ((*want)[i] != before[i]) {
        ++moved_there;
        moved_here_too += after[i] != before[i] ? 1 : 0;
      }
    }
    EXPECT_GT(moved_there, 0) << tensor.name;
    EXPECT_GT(static_cast<double>(moved_here_too), 0.99 * static_cast<double>(moved_there))
        << tensor.name;
  });
}

}  // namespace
}  // namespace megatrain
