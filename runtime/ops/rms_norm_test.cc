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

// The weight's dtype.
class RmsNormTest : public ::testing::TestWithParam<c10::ScalarType> {};

TEST_P(RmsNormTest, AgreesWithFloat64) {
  std::mt19937 random(kSeed);
  const at::Tensor x = RandomNormal({37, 48}, at::kFloat, random);
  const at::Tensor weight = RandomNormal({48}, GetParam(), random);
  const at::Tensor gradient = RandomNormal({37, 48}, at::kFloat, random);
  const Reference reference = Differentiate(
      [](const std::vector<at::Tensor>& in) {
        const at::Tensor mean = in[0].square().mean(at::IntArrayRef{1}, /*keepdim=*/true);
        return in[0].mul(mean.add(kEpsilon).rsqrt()).mul(in[1]);
      },
      {x, weight}, gradient);

  const at::Tensor normed = at::empty({37, 48}, at::kFloat);
  const at::Tensor factor =
      RmsNormForward(x.to(at::kFloat), weight.to(GetParam()), kEpsilon, normed);
  EXPECT_LT(RelativeError(normed, reference.output), 1e-6);

  const at::Tensor before = RandomNormal({48}, at::kFloat, random);
  const at::Tensor weight_gradient = before.to(at::kFloat);
  const at::Tensor x_gradient = at::zeros({37, 48}, at::kFloat);
  RmsNormBackward({.x_TD = x.to(at::kFloat),
                   .weight_D = weight.to(GetParam()),
                   .inverse_rms_T1 = factor,
                   .normed_gradient_TD = gradient.to(at::kFloat),
                   .weight_gradient_D = weight_gradient,
                   .x_gradient_TD = x_gradient});
  EXPECT_LT(RelativeError(weight_gradient, before.add(reference.gradients[1])), 1e-6);
  EXPECT_LT(RelativeError(x_gradient, reference.gradients[0]), 1e-6);
}

TEST_P(RmsNormTest, AddsToTheGradientOfX) {
  std::mt19937 random(kSeed);
  const at::Tensor x = RandomNormal({5, 64}, at::kFloat, random).to(at::kFloat);
  const at::Tensor weight = RandomNormal({64}, GetParam(), random).to(GetParam());
  const at::Tensor normed = at::empty({5, 64}, at::kFloat);
  const at::Tensor factor = RmsNormForward(x, weight, kEpsilon, normed);
  const at::Tensor weight_gradient = at::zeros({64}, at::kFloat);
  const at::Tensor zero = at::zeros({5, 64}, at::kFloat);
  const at::Tensor x_gradient = RandomNormal({5, 64}, at::kFloat, random).to(at::kFloat);
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

INSTANTIATE_TEST_SUITE_P(Dtypes, RmsNormTest, ::testing::Values(at::kFloat, at::kBFloat16));

}  // namespace
}  // namespace megatrain
