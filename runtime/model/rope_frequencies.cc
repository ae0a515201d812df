#include "runtime/model/rope_frequencies.h"

#include <cmath>
#include <numbers>

#include "runtime/base/check.h"

namespace megatrain {
namespace {

// Long wavelengths are stretched by the factor, short ones kept, those between blended
// (transformers, _compute_llama3_parameters).
float StretchByWavelength(const RopeConfig& rope, float frequency) {
  const auto original = static_cast<float>(rope.original_max_positions);
  const auto longest = static_cast<float>(static_cast<double>(rope.original_max_positions) /
                                          rope.low_frequency_factor);
  const auto shortest = static_cast<float>(static_cast<double>(rope.original_max_positions) /
                                           rope.high_frequency_factor);
  const auto factor = static_cast<float>(rope.factor);
  const float wavelength = static_cast<float>(2 * std::numbers::pi) / frequency;
  if (wavelength > longest) {
    return frequency / factor;
  }
  if (wavelength < shortest) {
    return frequency;
  }
  const auto width = static_cast<float>(rope.high_frequency_factor - rope.low_frequency_factor);
  const float share =
      (original / wavelength - static_cast<float>(rope.low_frequency_factor)) / width;
  return (1.0F - share) * frequency / factor + share * frequency;
}

float Frequency(const RopeConfig& rope, float exponent) {
  const double theta = static_cast<float>(rope.theta);
  const float frequency = 1.0F / static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
  switch (rope.kind) {
    case RopeKind::kLinear:
      return frequency / static_cast<float>(rope.factor);
    case RopeKind::kLlama3:
      return StretchByWavelength(rope, frequency);
    default:
      return frequency;
  }
}

}  // namespace

std::vector<float> RopeFrequencies(const RopeConfig& rope, int64_t head_dim) {
  MT_CHECK(rope.kind != RopeKind::kOther);
  std::vector<float> frequencies;
  for (int64_t channel = 0; channel < head_dim; channel += 2) {
    const float exponent = static_cast<float>(channel) / static_cast<float>(head_dim);
    frequencies.push_back(Frequency(rope, exponent));
  }
  return frequencies;
}

std::vector<float> RopeTableValues(int64_t positions, std::span<const float> frequencies) {
  std::vector<float> values;
  values.reserve(2 * positions * frequencies.size());
  for (int64_t position = 0; position < positions; ++position) {
    for (const float frequency : frequencies) {
      const float angle = static_cast<float>(position) * frequency;
      values.push_back(std::cos(angle));
      values.push_back(std::sin(angle));
    }
  }
  return values;
}

}  // namespace megatrain
