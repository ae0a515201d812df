#include "runtime/pipeline/gradient_math.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace megatrain {
namespace {

constexpr size_t kBlock = 4096;
constexpr size_t kLanes = 8;

double BlockSumOfSquares(std::span<const float> block) {
  std::array<double, kLanes> lanes = {};
  const size_t whole = block.size() / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const double value = block[i + lane];
      lanes[lane] += value * value;
    }
  }
  for (size_t i = whole; i < block.size(); ++i) {
    const double value = block[i];
    lanes[i - whole] += value * value;
  }
  return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) +
         ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}

bool IsFinite(float value) { return (std::bit_cast<uint32_t>(value) & 0x7f800000u) != 0x7f800000u; }

bool IsFinite(uint16_t bfloat16) { return (bfloat16 & 0x7f80u) != 0x7f80u; }

template <typename Element>
int64_t FirstNonFiniteOf(const Element* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (!IsFinite(values[i])) {
      return i;
    }
  }
  return -1;
}

}  // namespace

double SumOfSquares(std::span<const float> values) {
  double sum = 0;
  for (size_t first = 0; first < values.size(); first += kBlock) {
    sum += BlockSumOfSquares(values.subspan(first, std::min(kBlock, values.size() - first)));
  }
  return sum;
}

void AddTo(std::span<float> target, std::span<const float> source) {
  for (size_t i = 0; i < target.size(); ++i) {
    target[i] += source[i];
  }
}

uint16_t RoundToBfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return static_cast<uint16_t>((bits >> 16) | 0x40u);  // a quiet NaN, whatever its low bits were
  }
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

void RoundToBfloat16InPlace(std::span<float> values) {
  // Element i is written at byte 2 i, after everything up to byte 4 i + 3 was read.
  std::byte* bytes = reinterpret_cast<std::byte*>(values.data());
  for (size_t i = 0; i < values.size(); ++i) {
    float value;
    std::memcpy(&value, bytes + i * sizeof(float), sizeof(value));
    const uint16_t rounded = RoundToBfloat16(value);
    std::memcpy(bytes + i * sizeof(rounded), &rounded, sizeof(rounded));
  }
}

int64_t FirstNonFinite(const void* values, ComputeDtype dtype, int64_t count) {
  if (dtype == ComputeDtype::kFloat32) {
    return FirstNonFiniteOf(static_cast<const float*>(values), count);
  }
  return FirstNonFiniteOf(static_cast<const uint16_t*>(values), count);
}

}  // namespace megatrain
