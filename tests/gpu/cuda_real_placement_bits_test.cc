// The same training of a real pretrained model on a GPU, bit for bit, in every placement. The model
// lies in the folder that MEGATRAIN_SMOLLM2 names.

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/gpu/cuda_backend_for_test.h"
#include "tests/parity/real_model_case.h"

namespace megatrain {
namespace {

class CudaRealPlacementBits : public ::testing::TestWithParam<ComputeDtype> {};

TEST_P(CudaRealPlacementBits, SmolLm2) {
  const char* folder = std::getenv("MEGATRAIN_SMOLLM2");  // NOLINT(concurrency-mt-unsafe)
  if (folder == nullptr) {
    GTEST_SKIP() << "MEGATRAIN_SMOLLM2 names no folder of SmolLM2-135M";
  }
  ExpectSameBitsEverywhere(folder, {.dtype = GetParam(), .keeps_activations = true},
                           CudaBackendForTest());
}

INSTANTIATE_TEST_SUITE_P(Dtypes, CudaRealPlacementBits,
                         ::testing::Values(ComputeDtype::kFloat32, ComputeDtype::kBfloat16),
                         DtypeName);

}  // namespace
}  // namespace megatrain
