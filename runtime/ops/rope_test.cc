#include "runtime/ops/rope.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <random>
#include <vector>

#include "runtime/ops/gradient_check.h"

namespace megatrain {
namespace {

constexpr int kSeed = 12;

TEST(InverseFrequencies, DefaultIsAPowerOfTheta) {
  const std::vector<float> frequencies = InverseFrequencies({.theta = 100000.0}, 64);
  ASSERT_EQ(frequencies.size(), 32U);
  for (int i = 0; i < 32; ++i) {
    EXPECT_NEAR(frequencies[i] / std::pow(100000.0, -2.0 * i / 64), 1.0, 1e-6) << i;
  }
}

TEST(InverseFrequencies, LinearDividesByTheFactor) {
  const std::vector<float> plain = InverseFrequencies({.theta = 10000.0}, 16);
  const std::vector<float> linear =
      InverseFrequencies({.kind = RopeKind::kLinear, .theta = 10000.0, .factor = 8.0}, 16);
  for (int i = 0; i < 8; ++i) {
    EXPECT_FLOAT_EQ(linear[i], plain[i] / 8);
  }
}

TEST(InverseFrequencies, Llama3StretchesLongWavesKeepsShortOnesAndBlendsBetween) {
  const RopeConfig rope = {.kind = RopeKind::kLlama3,
                           .theta = 500000.0,
                           .factor = 32.0,
                           .low_frequency_factor = 1.0,
                           .high_frequency_factor = 4.0,
                           .original_max_positions = 8192};
  const std::vector<float> plain = InverseFrequencies({.theta = 500000.0}, 64);
  const std::vector<float> scaled = InverseFrequencies(rope, 64);
  int stretched = 0;
  int kept = 0;
  for (int i = 0; i < 32; ++i) {
    const double turns = 8192 * plain[i] / (2 * std::numbers::pi);  // in the original length
    double want = plain[i];
    if (turns < 1.0) {
      want = plain[i] / 32.0;
      ++stretched;
    } else if (turns <= 4.0) {
      const double share = (turns - 1.0) / 3.0;
      want = (1 - share) * plain[i] / 32.0 + share * plain[i];
    } else {
      ++kept;
    }
    EXPECT_NEAR(scaled[i] / want, 1.0, 1e-5) << i;
  }
  EXPECT_GT(stretched, 0);
  EXPECT_GT(kept, 0);
  EXPECT_LT(stretched + kept, 32);
}

// Independent of the op: complex numbers first + i second, times e^(i angle).
at::Tensor TurnedInFloat64(const at::Tensor& x, const std::vector<int32_t>& positions,
                           const std::vector<float>& frequencies) {
  at::Tensor turned = x.clone();
  const int64_t half = x.size(2) / 2;
  for (int64_t t = 0; t < x.size(0); ++t) {
    for (int64_t h = 0; h < x.size(1); ++h) {
      for (int64_t r = 0; r < half; ++r) {
        const double angle = static_cast<double>(positions[t]) * frequencies[r];
        const double first = x[t][h][r].item().toDouble();
        const double second = x[t][h][r + half].item().toDouble();
        turned[t][h][r] = first * std::cos(angle) - second * std::sin(angle);
        turned[t][h][r + half] = second * std::cos(angle) + first * std::sin(angle);
      }
    }
  }
  return turned;
}

TEST(Rotate, AgreesWithFloat64AndBackwardIsTheTranspose) {
  std::mt19937 random(kSeed);
  const std::vector<int32_t> positions = {0, 1, 2, 0, 1, 700};
  const std::vector<float> frequencies = InverseFrequencies({.theta = 10000.0}, 16);
  const at::Tensor x = RandomNormal({6, 3, 16}, at::kFloat, random);
  const RopeTable table = MakeRopeTable(positions, frequencies);
  const at::Tensor turned = x.to(at::kFloat);
  RotateForward(table, turned);
  EXPECT_LT(RelativeError(turned, TurnedInFloat64(x, positions, frequencies)), 1e-5);

  const at::Tensor gradient = RandomNormal({6, 3, 16}, at::kFloat, random);
  const at::Tensor back = gradient.to(at::kFloat);
  RotateBackward(table, back);
  const double forward_product = turned.to(at::kDouble).mul(gradient).sum().item().toDouble();
  const double backward_product = back.to(at::kDouble).mul(x).sum().item().toDouble();
  EXPECT_NEAR(forward_product, backward_product, 1e-5);
  RotateForward(table, back);
  EXPECT_LT(RelativeError(back, gradient), 1e-6);
}

}  // namespace
}  // namespace megatrain
