// The same training of a real pretrained model, bit for bit, in every placement.

#include <gtest/gtest.h>

#include <string>

#include "tests/parity/real_model_case.h"
#include "tests/parity/reference_case.h"
#include "tests/parity/training_rig.h"

namespace megatrain {
namespace {

class RealPlacementBits : public ::testing::TestWithParam<ComputeDtype> {
 protected:
  static void SetUpTestSuite() {
    ASSERT_TRUE(RunPython("deploy/smollm2/unpack.py '" + folder_ + "'"));
  }

  static inline const std::string folder_ = ::testing::TempDir() + "/smollm2";
};

TEST_P(RealPlacementBits, SmolLm2) {
  const ComputeDtype dtype = GetParam();
  ExpectSameBitsEverywhere(folder_,
                           {.dtype = dtype, .every = dtype == ComputeDtype::kFloat32 ? 2 : 8},
                           CpuBackendForTest());
}

INSTANTIATE_TEST_SUITE_P(Dtypes, RealPlacementBits,
                         ::testing::Values(ComputeDtype::kFloat32, ComputeDtype::kBfloat16),
                         DtypeName);

}  // namespace
}  // namespace megatrain
