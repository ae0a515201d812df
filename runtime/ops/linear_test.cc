#include "runtime/ops/linear.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <random>

#include "runtime/ops/gradient_check.h"

namespace megatrain {
namespace {

constexpr int kSeed = 13;

struct Case {
  c10::ScalarType dtype;
  double tolerance;
};

class LinearTest : public ::testing::TestWithParam<Case> {};

TEST_P(LinearTest, AgreesWithFloat64) {
  const auto [dtype, tolerance] = GetParam();
  std::mt19937 random(kSeed);
  const at::Tensor x = RandomNormal({29, 48}, dtype, random);
  const at::Tensor weight = RandomNormal({80, 48}, dtype, random);
  const at::Tensor bias = RandomNormal({80}, dtype, random);
  const at::Tensor gradient = RandomNormal({29, 80}, dtype, random);
  const Reference reference = Differentiate(
      [](const std::vector<at::Tensor>& in) { return in[0].mm(in[1].t()).add(in[2]); },
      {x, weight, bias}, gradient);

  const at::Tensor y = at::empty({29, 80}, dtype);
  LinearForward(x.to(dtype), weight.to(dtype), bias.to(dtype), y);
  EXPECT_LT(RelativeError(y, reference.output), tolerance);
  LinearForward(x.to(dtype), weight.to(dtype), y);
  EXPECT_LT(RelativeError(y, reference.output.sub(bias)), tolerance);
  LinearForward(x.to(dtype), weight.to(dtype), gradient.to(dtype), y);
  EXPECT_LT(RelativeError(y, reference.output.sub(bias).add(gradient)), tolerance);

  const at::Tensor x_gradient = at::empty({29, 48}, dtype);
  LinearBackwardInput(gradient.to(dtype), weight.to(dtype), x_gradient);
  EXPECT_LT(RelativeError(x_gradient, reference.gradients[0]), tolerance);
  LinearBackwardInputAdd(gradient.to(dtype), weight.to(dtype), x_gradient);
  EXPECT_LT(RelativeError(x_gradient, reference.gradients[0].mul(2)), tolerance);
}

// The sums are fp32 for bf16 operands too: many small additions survive.
TEST_P(LinearTest, AccumulatesParameterGradientsInFloat32) {
  const c10::ScalarType dtype = GetParam().dtype;
  std::mt19937 random(kSeed);
  const at::Tensor x = RandomNormal({29, 48}, dtype, random);
  const at::Tensor gradient = RandomNormal({29, 80}, dtype, random);
  at::Tensor want_weight = RandomNormal({80, 48}, at::kFloat, random).mul(1000);
  at::Tensor want_bias = RandomNormal({80}, at::kFloat, random).mul(1000);
  const at::Tensor weight_gradient = want_weight.to(at::kFloat);
  const at::Tensor bias_gradient = want_bias.to(at::kFloat);
  for (int i = 0; i < 8; ++i) {
    LinearBackwardWeight(gradient.to(dtype), x.to(dtype), weight_gradient);
    BiasBackward(gradient.to(dtype), bias_gradient);
    want_weight = want_weight.add(gradient.t().mm(x));
    want_bias = want_bias.add(gradient.sum(0));
  }
  EXPECT_LT(RelativeError(weight_gradient, want_weight), 1e-6);
  EXPECT_LT(RelativeError(bias_gradient, want_bias), 1e-6);
}

// A weight of more than one block gives what one product gives, and fp32 results from bf16.
TEST(Linear, WideWeightsGoThroughInBlocks) {
  std::mt19937 random(kSeed);
  constexpr int64_t kWidth = 2048;
  const int64_t rows = 2 * kWeightBlockElements / kWidth + 7;
  const at::Tensor x = RandomNormal({5, kWidth}, at::kBFloat16, random);
  const at::Tensor weight = RandomNormal({rows, kWidth}, at::kBFloat16, random);
  const at::Tensor gradient = RandomNormal({5, rows}, at::kBFloat16, random);
  const at::Tensor y = at::empty({5, rows}, at::kFloat);
  LinearForward(x.to(at::kBFloat16), weight.to(at::kBFloat16), y);
  EXPECT_LT(RelativeError(y, x.mm(weight.t())), 1e-6);
  const at::Tensor x_gradient = at::empty({5, kWidth}, at::kFloat);
  LinearBackwardInput(gradient.to(at::kBFloat16), weight.to(at::kBFloat16), x_gradient);
  EXPECT_LT(RelativeError(x_gradient, gradient.mm(weight)), 1e-6);
  LinearBackwardInputAdd(gradient.to(at::kBFloat16), weight.to(at::kBFloat16), x_gradient);
  EXPECT_LT(RelativeError(x_gradient, gradient.mm(weight).mul(2)), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, LinearTest,
                         ::testing::Values(Case{at::kFloat, 1e-6}, Case{at::kBFloat16, 5e-3}));

}  // namespace
}  // namespace megatrain
