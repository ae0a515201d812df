#include "runtime/ops/swiglu.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/silu.h>
#include <gtest/gtest.h>

#include <random>

#include "runtime/ops/gradient_check.h"

namespace megatrain {
namespace {

constexpr int kSeed = 14;

struct Case {
  c10::ScalarType dtype;
  double tolerance;
};

class SwigluTest : public ::testing::TestWithParam<Case> {};

TEST_P(SwigluTest, AgreesWithFloat64) {
  const auto [dtype, tolerance] = GetParam();
  std::mt19937 random(kSeed);
  const at::Tensor gate = RandomNormal({17, 96}, dtype, random);
  const at::Tensor up = RandomNormal({17, 96}, dtype, random);
  const at::Tensor gradient = RandomNormal({17, 96}, dtype, random);
  const Reference reference =
      Differentiate([](const std::vector<at::Tensor>& in) { return at::silu(in[0]).mul(in[1]); },
                    {gate, up}, gradient);

  const at::Tensor out = at::empty({17, 96}, dtype);
  SwigluForward(gate.to(dtype), up.to(dtype), out);
  EXPECT_LT(RelativeError(out, reference.output), tolerance);
  const at::Tensor gate_gradient = gradient.to(dtype);
  const at::Tensor up_gradient = at::empty({17, 96}, dtype);
  SwigluBackward(gate.to(dtype), up.to(dtype), gate_gradient, up_gradient);
  EXPECT_LT(RelativeError(gate_gradient, reference.gradients[0]), tolerance);
  EXPECT_LT(RelativeError(up_gradient, reference.gradients[1]), tolerance);
}

// The forward result may take the gate's place.
TEST_P(SwigluTest, WorksInPlace) {
  const c10::ScalarType dtype = GetParam().dtype;
  std::mt19937 random(kSeed);
  const at::Tensor gate = RandomNormal({17, 96}, dtype, random).to(dtype);
  const at::Tensor up = RandomNormal({17, 96}, dtype, random).to(dtype);
  const at::Tensor out = at::empty({17, 96}, dtype);
  SwigluForward(gate, up, out);
  SwigluForward(gate, up, gate);
  EXPECT_TRUE(SameBits(gate, out));
}

INSTANTIATE_TEST_SUITE_P(Dtypes, SwigluTest,
                         ::testing::Values(Case{at::kFloat, 1e-6}, Case{at::kBFloat16, 6e-3}));

}  // namespace
}  // namespace megatrain
