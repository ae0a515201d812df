#include "runtime/ops/rope.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/where.h>
#include <c10/core/InferenceMode.h>

#include <numbers>

#include "runtime/base/check.h"
#include "runtime/ops/tensor_view.h"

namespace megatrain {
namespace {

// Long wavelengths are stretched by the factor, short ones kept, those between blended
// (transformers, _compute_llama3_parameters).
at::Tensor StretchByWavelength(const RopeConfig& rope, const at::Tensor& frequency_R) {
  const auto original = static_cast<double>(rope.original_max_positions);
  const double longest = original / rope.low_frequency_factor;
  const double shortest = original / rope.high_frequency_factor;
  const at::Tensor wavelength_R = (2 * std::numbers::pi) / frequency_R;
  const at::Tensor stretched_R =
      at::where(wavelength_R > longest, frequency_R / rope.factor, frequency_R);
  const at::Tensor share_R = (original / wavelength_R - rope.low_frequency_factor) /
                             (rope.high_frequency_factor - rope.low_frequency_factor);
  const at::Tensor blended_R = (1 - share_R) * stretched_R / rope.factor + share_R * stretched_R;
  const at::Tensor between_R = (wavelength_R >= shortest).logical_and(wavelength_R <= longest);
  return at::where(between_R, blended_R, stretched_R);
}

// (first, second) <- (first cos - sign second sin, second cos + sign first sin).
void Rotate(const RopeTable& table, const at::Tensor& x_THC, double sign) {
  const int64_t half = x_THC.size(2) / 2;
  const at::Tensor first_THR = x_THC.narrow(2, 0, half);
  const at::Tensor second_THR = x_THC.narrow(2, half, half);
  at::Tensor turned_THR = at::mul(first_THR, table.cos_T1R);
  turned_THR.addcmul_(second_THR, table.sin_T1R, -sign);
  second_THR.mul_(table.cos_T1R).addcmul_(first_THR, table.sin_T1R, sign);
  first_THR.copy_(turned_THR);
}

}  // namespace

std::vector<float> InverseFrequencies(const RopeConfig& rope, int64_t head_dim) {
  MT_CHECK(rope.kind != RopeKind::kOther);
  const c10::InferenceMode no_autograd;
  const at::Tensor exponent_R =
      at::arange(0, head_dim, 2, at::kLong).to(at::kFloat) / static_cast<double>(head_dim);
  at::Tensor frequency_R = 1.0 / at::pow(rope.theta, exponent_R);
  if (rope.kind == RopeKind::kLinear) {
    frequency_R = frequency_R / rope.factor;
  } else if (rope.kind == RopeKind::kLlama3) {
    frequency_R = StretchByWavelength(rope, frequency_R);
  }
  const float* data = frequency_R.const_data_ptr<float>();
  return {data, data + frequency_R.numel()};
}

RopeTable MakeRopeTable(std::span<const int32_t> positions, std::span<const float> frequencies) {
  const auto tokens = static_cast<int64_t>(positions.size());
  const auto half = static_cast<int64_t>(frequencies.size());
  const at::Tensor angle_T1R = Uninitialized({tokens, 1, half}, at::kFloat);
  auto* angle = angle_T1R.mutable_data_ptr<float>();
  for (const int32_t position : positions) {
    for (const float frequency : frequencies) {
      *angle++ = static_cast<float>(position) * frequency;
    }
  }
  at::Tensor cos_T1R = at::cos(angle_T1R);
  angle_T1R.sin_();
  return {.cos_T1R = cos_T1R, .sin_T1R = angle_T1R};
}

void RotateForward(const RopeTable& table, const at::Tensor& x_THC) { Rotate(table, x_THC, 1); }

void RotateBackward(const RopeTable& table, const at::Tensor& gradient_THC) {
  Rotate(table, gradient_THC, -1);
}

}  // namespace megatrain
