#include "runtime/model/rope_frequencies.h"

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "runtime/ops/rope.h"

namespace megatrain {
namespace {

RopeConfig Llama3() {
  return {.kind = RopeKind::kLlama3,
          .theta = 500000.0,
          .factor = 32.0,
          .low_frequency_factor = 1.0,
          .high_frequency_factor = 4.0,
          .original_max_positions = 8192};
}

// Equal bits but where LibTorch's vectorized power is a unit off, which is rare.
void ExpectLibTorchs(const RopeConfig& rope, int64_t head_dim) {
  const std::vector<float> ours = RopeFrequencies(rope, head_dim);
  const std::vector<float> theirs = InverseFrequencies(rope, head_dim);
  ASSERT_EQ(ours.size(), theirs.size());
  size_t different = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_NEAR(ours[i] / theirs[i], 1.0, 2e-7) << i;
    different += ours[i] != theirs[i] ? 1 : 0;
  }
  EXPECT_LE(different, 1 + ours.size() / 32);
}

TEST(RopeFrequencies, AreLibTorchs) {
  for (const double theta : {1e4, 5e5, 1e6}) {
    for (const int64_t head_dim : {8, 64, 80, 128, 256}) {
      ExpectLibTorchs({.theta = theta}, head_dim);
      ExpectLibTorchs({.kind = RopeKind::kLinear, .theta = theta, .factor = 3.0}, head_dim);
    }
  }
  ExpectLibTorchs(Llama3(), 64);
  ExpectLibTorchs(Llama3(), 128);
}

TEST(RopeFrequencies, Llama3HasWavesOfAllThreeKinds) {
  const std::vector<float> plain = RopeFrequencies({.theta = 500000.0}, 128);
  const std::vector<float> scaled = RopeFrequencies(Llama3(), 128);
  int kept = 0;
  int stretched = 0;
  for (size_t i = 0; i < plain.size(); ++i) {
    kept += scaled[i] == plain[i] ? 1 : 0;
    stretched += scaled[i] == plain[i] / 32.0F ? 1 : 0;
  }
  EXPECT_GT(kept, 8);
  EXPECT_GT(stretched, 8);
  EXPECT_LT(kept + stretched, 64);
}

TEST(RopeTableValues, AreCosineAndSineOfTheAngle) {
  const std::vector<float> frequencies = RopeFrequencies({.theta = 10000.0}, 64);
  const std::vector<float> table = RopeTableValues(301, frequencies);
  std::vector<int32_t> positions(301);
  std::iota(positions.begin(), positions.end(), 0);
  const RopeTable reference = MakeRopeTable(positions, frequencies);
  ASSERT_EQ(table.size(), 2U * 301 * 32);
  const auto* cosine = reference.cos_T1R.const_data_ptr<float>();
  const auto* sine = reference.sin_T1R.const_data_ptr<float>();
  for (size_t i = 0; i < table.size() / 2; ++i) {
    EXPECT_NEAR(table[2 * i], cosine[i], 2e-7) << i;
    EXPECT_NEAR(table[2 * i + 1], sine[i], 2e-7) << i;
  }
}

}  // namespace
}  // namespace megatrain
