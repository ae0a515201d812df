#include "runtime/ops/rms_norm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <random>

#include "runtime/ops/gradient_check.h"

namespace megatrain {
namespace {

constexpr int kSeed = 11;
constexpr double kEpsilon = 1e-5;

struct Case {
  c10::ScalarType dtype;
  double tolerance;
};

class RmsNormTest : public ::testing::TestWithParam<Case> {};

TEST_P(RmsNormTest, AgreesWithFloat64) {
  const auto [dtype, tolerance] = GetParam();
  std::mt19937 random(kSeed);
  const at::Tensor x = RandomNormal({37, 48}, dtype, random);
  const at::Tensor weight = RandomNormal({48}, dtype, random);
  const at::Tensor gradient = RandomNormal({37, 48}, dtype, random);
  const Reference reference = Differentiate(
      [](const std::vector<at::Tensor>& in) {
        const at::Tensor mean = in[0].square().mean(at::IntArrayRef{1}, /*keepdim=*/true);
        return in[0].mul(mean.add(kEpsilon).rsqrt()).mul(in[1]);
      },
      {x, weight}, gradient);

  const at::Tensor normed = at::empty({37, 48}, dtype);
  const at::Tensor factor = RmsNormForward(x.to(dtype), weight.to(dtype), kEpsilon, normed);
  EXPECT_LT(RelativeError(normed, reference.output), tolerance);

  const at::Tensor before = RandomNormal({48}, at::kFloat, random);
  const at::Tensor weight_gradient = before.to(at::kFloat);
  const at::Tensor x_gradient = at::zeros({37, 48}, dtype);
  RmsNormBackward({.x_TD = x.to(dtype),
                   .weight_D = weight.to(dtype),
                   .inverse_rms_T1 = factor,
                   .normed_gradient_TD = gradient.to(dtype),
                   .weight_gradient_D = weight_gradient,
                   .x_gradient_TD = x_gradient});
  EXPECT_LT(RelativeError(weight_gradient, before.add(reference.gradients[1])), 1e-6);
  EXPECT_LT(RelativeError(x_gradient, reference.gradients[0]), tolerance);
}

TEST_P(RmsNormTest, AddsToTheGradientOfX) {
  const c10::ScalarType dtype = GetParam().dtype;
  std::mt19937 random(kSeed);
  const at::Tensor x = RandomNormal({5, 64}, dtype, random).to(dtype);
  const at::Tensor weight = RandomNormal({64}, dtype, random).to(dtype);
  const at::Tensor normed = at::empty({5, 64}, dtype);
  const at::Tensor factor = RmsNormForward(x, weight, kEpsilon, normed);
  const at::Tensor weight_gradient = at::zeros({64}, at::kFloat);
  const at::Tensor zero = at::zeros({5, 64}, dtype);
  const at::Tensor x_gradient = RandomNormal({5, 64}, dtype, random).to(dtype);
  const at::Tensor before = x_gradient.clone();
  RmsNormBackward({.x_TD = x,
                   .weight_D = weight,
                   .inverse_rms_T1 = factor,
                   .normed_gradient_TD = zero,
                   .weight_gradient_D = weight_gradient,
                   .x_gradient_TD = x_gradient});
  EXPECT_TRUE(SameBits(x_gradient, before));
}

TEST(RmsNorm, SmallValuesAreHeldByEpsilon) {
  const at::Tensor x = at::zeros({1, 64}, at::kFloat);
  const at::Tensor weight = at::zeros({64}, at::kFloat).add_(1);
  const at::Tensor normed = at::empty({1, 64}, at::kFloat);
  const at::Tensor factor = RmsNormForward(x, weight, 0.25, normed);
  EXPECT_FLOAT_EQ(factor.item().toFloat(), 2.0F);
  EXPECT_EQ(normed.abs().max().item().toFloat(), 0.0F);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, RmsNormTest,
                         ::testing::Values(Case{at::kFloat, 1e-6}, Case{at::kBFloat16, 6e-3}));

}  // namespace
}  // namespace megatrain
