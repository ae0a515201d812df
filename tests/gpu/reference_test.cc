// The engine on a GPU against transformers and torch. What they computed lies in the folder that
// MEGATRAIN_GPU_REFERENCES names, written by tests/gpu/references where they are installed.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "runtime/model/layer_template.h"
#include "tests/gpu/cuda_backend_for_test.h"
#include "tests/parity/real_model_case.h"
#include "tests/parity/reference_case.h"
#include "tests/parity/reference_training.h"

namespace megatrain {
namespace {

std::string FromEnvironment(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody sets any
  return value == nullptr ? "" : value;
}

std::unique_ptr<ReferenceCase> OpenCase(const std::string& name) {
  const std::string folder = FromEnvironment("MEGATRAIN_GPU_REFERENCES");
  EXPECT_FALSE(folder.empty())
      << "MEGATRAIN_GPU_REFERENCES is to name tests/gpu/references' folder";
  return OpenReferenceCase(folder + "/toys", name);
}

class CudaFloat32Reference : public ::testing::TestWithParam<std::string> {};

TEST_P(CudaFloat32Reference, LossNormAndGradientsForAnyNumberOfMicroBatches) {
  const auto reference = OpenCase(GetParam());
  ASSERT_NE(reference, nullptr);
  ExpectFirstStep(*reference, ComputeDtype::kFloat32, CudaBackendForTest(),
                  {.loss = 1e-6, .norm = 1e-5, .gradients = 1e-5});
}

TEST_P(CudaFloat32Reference, TwentyAdamWStepsWithClipping) {
  const auto reference = OpenCase(GetParam());
  ASSERT_NE(reference, nullptr);
  ExpectTwentySteps(*reference, CudaBackendForTest());
}

INSTANTIATE_TEST_SUITE_P(Families, CudaFloat32Reference,
                         ::testing::Values("llama_tied", "llama_untied_llama3",
                                           "llama_untied_linear", "qwen2_tied", "qwen2_untied"),
                         [](const auto& info) { return info.param; });

class CudaBfloat16Reference : public ::testing::TestWithParam<std::string> {};

// On a GPU activations are bf16 too. Measured: 2.3e-2 at the bias of the keys and 2.03e-2 at a
// query matrix of the toys, below 2e-2 at all other tensors.
TEST_P(CudaBfloat16Reference, LossAndGradientsOfTheSameBfloat16Weights) {
  const auto reference = OpenCase(GetParam());
  ASSERT_NE(reference, nullptr);
  ExpectFirstStep(*reference, ComputeDtype::kBfloat16, CudaBackendForTest(),
                  {.loss = 2e-3, .norm = 2e-2, .gradients = 2.5e-2});
}

INSTANTIATE_TEST_SUITE_P(Families, CudaBfloat16Reference,
                         ::testing::Values("llama_bf16", "qwen2_bf16"),
                         [](const auto& info) { return info.param; });

TEST(CudaRealModel, MeanLossAndGradientNormOfAnEnglishTextAreTransformers) {
  const std::string model = FromEnvironment("MEGATRAIN_SMOLLM2");
  if (model.empty()) {
    GTEST_SKIP() << "MEGATRAIN_SMOLLM2 names no folder of SmolLM2-135M";
  }
  const auto reference =
      ReadRealModelReference(FromEnvironment("MEGATRAIN_GPU_REFERENCES") + "/smollm2.json");
  ASSERT_TRUE(reference.ok()) << reference.status();
  const auto rig = LoadRealModel(model, static_cast<int64_t>(reference->document.tokens.size()),
                                 CudaBackendForTest());
  ASSERT_TRUE(rig.ok()) << rig.status();
  ExpectMeanLoss(*reference, **rig);
  ExpectGradientNorm(*reference, **rig);
}

}  // namespace
}  // namespace megatrain
