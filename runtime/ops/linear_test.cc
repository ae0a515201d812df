#include "runtime/ops/linear.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <random>

#include "runtime/ops/gradient_check.h"

namespace megatrain {
namespace {

constexpr int kSeed = 13;

// The weight's and bias's dtype.
class LinearTest : public ::testing::TestWithParam<c10::ScalarType> {};

TEST_P(LinearTest, AgreesWithFloat64) {
  std::mt19937 random(kSeed);
  const at::Tensor x = RandomNormal({29, 48}, at::kFloat, random);
  const at::Tensor weight = RandomNormal({80, 48}, GetParam(), random);
  const at::Tensor bias = RandomNormal({80}, GetParam(), random);
  const at::Tensor gradient = RandomNormal({29, 80}, at::kFloat, random);
  const Reference reference = Differentiate(
      [](const std::vector<at::Tensor>& in) { return in[0].mm(in[1].t()).add(in[2]); },
      {x, weight, bias}, gradient);

  const at::Tensor narrow = weight.to(GetParam());
  const at::Tensor y = at::empty({29, 80}, at::kFloat);
  LinearForward(x.to(at::kFloat), narrow, bias.to(GetParam()), y);
  EXPECT_LT(RelativeError(y, reference.output), 1e-6);
  LinearForward(x.to(at::kFloat), narrow, y);
  EXPECT_LT(RelativeError(y, reference.output.sub(bias)), 1e-6);
  LinearForward(x.to(at::kFloat), narrow, gradient.to(at::kFloat), y);
  EXPECT_LT(RelativeError(y, reference.output.sub(bias).add(gradient)), 1e-6);

  const at::Tensor x_gradient = at::empty({29, 48}, at::kFloat);
  LinearBackwardInput(gradient.to(at::kFloat), narrow, x_gradient);
  EXPECT_LT(RelativeError(x_gradient, reference.gradients[0]), 1e-6);
  LinearBackwardInputAdd(gradient.to(at::kFloat), narrow, x_gradient);
  EXPECT_LT(RelativeError(x_gradient, reference.gradients[0].mul(2)), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, LinearTest, ::testing::Values(at::kFloat, at::kBFloat16));

TEST(Linear, ParameterGradientsAreAddedToWhatIsThere) {
  std::mt19937 random(kSeed);
  const at::Tensor x = RandomNormal({29, 48}, at::kFloat, random);
  const at::Tensor gradient = RandomNormal({29, 80}, at::kFloat, random);
  const at::Tensor before = RandomNormal({80, 48}, at::kFloat, random);
  const at::Tensor weight_gradient = before.to(at::kFloat);
  const at::Tensor bias_gradient = before.select(1, 0).to(at::kFloat);
  LinearBackwardWeight(gradient.to(at::kFloat), x.to(at::kFloat), weight_gradient);
  BiasBackward(gradient.to(at::kFloat), bias_gradient);
  EXPECT_LT(RelativeError(weight_gradient, before.add(gradient.t().mm(x))), 1e-6);
  EXPECT_LT(RelativeError(bias_gradient, before.select(1, 0).add(gradient.sum(0))), 1e-6);
}

// A weight of more than one block gives what one product gives.
TEST(Linear, WideWeightsGoThroughInBlocks) {
  std::mt19937 random(kSeed);
  constexpr int64_t kWidth = 2048;
  const int64_t rows = 2 * kWeightBlockElements / kWidth + 7;
  const at::Tensor x = RandomNormal({5, kWidth}, at::kFloat, random);
  const at::Tensor weight = RandomNormal({rows, kWidth}, at::kBFloat16, random);
  const at::Tensor gradient = RandomNormal({5, rows}, at::kFloat, random);
  const at::Tensor narrow = weight.to(at::kBFloat16);
  const at::Tensor y = at::empty({5, rows}, at::kFloat);
  LinearForward(x.to(at::kFloat), narrow, y);
  EXPECT_LT(RelativeError(y, x.mm(weight.t())), 1e-6);
  const at::Tensor x_gradient = at::empty({5, kWidth}, at::kFloat);
  LinearBackwardInput(gradient.to(at::kFloat), narrow, x_gradient);
  EXPECT_LT(RelativeError(x_gradient, gradient.mm(weight)), 1e-6);
  LinearBackwardInputAdd(gradient.to(at::kFloat), narrow, x_gradient);
  EXPECT_LT(RelativeError(x_gradient, gradient.mm(weight).mul(2)), 1e-6);
}

}  // namespace
}  // namespace megatrain
