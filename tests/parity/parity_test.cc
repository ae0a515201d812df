// The engine against transformers and torch: toy models of every family, the real pipeline.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/ops/rope.h"
#include "tests/parity/documents.h"
#include "tests/parity/reference_case.h"
#include "tests/parity/reference_training.h"
#include "tests/parity/tensor_comparison.h"
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
  return OpenReferenceCase(ReferenceFolder(), name);
}

class Float32Parity : public ::testing::TestWithParam<std::string> {};

TEST_P(Float32Parity, LossNormAndGradientsForAnyNumberOfMicroBatches) {
  const auto reference = OpenCase(GetParam());
  ASSERT_NE(reference, nullptr);
  ExpectFirstStep(*reference, ComputeDtype::kFloat32, CpuBackendForTest(),
                  {.loss = 1e-6, .norm = 1e-6, .gradients = 1e-5});
}

TEST_P(Float32Parity, TwentyAdamWStepsWithClipping) {
  const auto reference = OpenCase(GetParam());
  ASSERT_NE(reference, nullptr);
  ExpectTwentySteps(*reference, CpuBackendForTest());
}

TEST_P(Float32Parity, EvaluationOfPackedDocumentsIsThatOfEachByItself) {
  const auto reference = OpenCase(GetParam());
  ASSERT_NE(reference, nullptr);
  const auto rig = LoadRig(*reference, {}, CpuBackendForTest());
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
  ExpectFirstStep(*reference, ComputeDtype::kBfloat16, CpuBackendForTest(),
                  {.loss = 2e-3, .norm = 2e-2, .gradients = 2e-2});
}

INSTANTIATE_TEST_SUITE_P(Families, Bfloat16Parity, ::testing::Values("llama_bf16", "qwen2_bf16"),
                         [](const auto& info) { return info.param; });

// A hundred steps at learning rate 1e-5 move the master weights where torch's fp32 weights move,
// although bf16 weights of this size would mostly stand still.
TEST(SlowTraining, MovesTheMasterWhereverTheReferenceMoves) {
  const auto reference = OpenCase("qwen2_slow");
  ASSERT_NE(reference, nullptr);
  const auto rig = LoadRig(*reference, {.dtype = ComputeDtype::kBfloat16}, CpuBackendForTest());
  const auto untrained =
      LoadRig(*reference, {.dtype = ComputeDtype::kBfloat16}, CpuBackendForTest());
  ASSERT_EQ(TrainReference(*reference, *rig, 100, 1).size(), 100U);
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
