#include "runtime/ops/swiglu.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/silu.h>
#include <gtest/gtest.h>

#include <random>

#include "runtime/ops/gradient_check.h"

namespace megatrain {
namespace {

constexpr int kSeed = 14;

TEST(Swiglu, AgreesWithFloat64) {
  std::mt19937 random(kSeed);
  const at::Tensor gate = RandomNormal({17, 96}, at::kFloat, random);
  const at::Tensor up = RandomNormal({17, 96}, at::kFloat, random);
  const at::Tensor gradient = RandomNormal({17, 96}, at::kFloat, random);
  const Reference reference =
      Differentiate([](const std::vector<at::Tensor>& in) { return at::silu(in[0]).mul(in[1]); },
                    {gate, up}, gradient);

  const at::Tensor out = at::empty({17, 96}, at::kFloat);
  SwigluForward(gate.to(at::kFloat), up.to(at::kFloat), out);
  EXPECT_LT(RelativeError(out, reference.output), 1e-6);
  const at::Tensor gate_gradient = gradient.to(at::kFloat);
  const at::Tensor up_gradient = at::empty({17, 96}, at::kFloat);
  SwigluBackward(gate.to(at::kFloat), up.to(at::kFloat), gate_gradient, up_gradient);
  EXPECT_LT(RelativeError(gate_gradient, reference.gradients[0]), 1e-6);
  EXPECT_LT(RelativeError(up_gradient, reference.gradients[1]), 1e-6);
}

TEST(Swiglu, WorksInPlace) {
  std::mt19937 random(kSeed);
  const at::Tensor gate = RandomNormal({17, 96}, at::kFloat, random).to(at::kFloat);
  const at::Tensor up = RandomNormal({17, 96}, at::kFloat, random).to(at::kFloat);
  const at::Tensor out = at::empty({17, 96}, at::kFloat);
  SwigluForward(gate, up, out);
  SwigluForward(gate, up, gate);
  EXPECT_TRUE(SameBits(gate, out));
}

}  // namespace
}  // namespace megatrain
