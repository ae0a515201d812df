#include "runtime/model_io/element_conversion.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "runtime/base/check.h"
#include "runtime/hoststore/split_float.h"

namespace megatrain {
namespace {

constexpr uint32_t kSignBit = 0x80000000u;
constexpr int kMantissaShift = 23 - 10;  // fp32's fraction bits less a half's

template <typename T>
T LoadAt(const char* bytes, int64_t index) {
  T value;
  std::memcpy(&value, bytes + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <typename T>
void StoreAt(char* bytes, int64_t index, T value) {
  std::memcpy(bytes + index * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

bool IsFinite(uint32_t float_bits) { return (float_bits & 0x7f800000u) != 0x7f800000u; }

uint32_t LoadBits(TensorDtype dtype, const char* bytes, int64_t index) {
  switch (dtype) {
    case TensorDtype::kF32:
      return LoadAt<uint32_t>(bytes, index);
    case TensorDtype::kBf16:
      return uint32_t{LoadAt<uint16_t>(bytes, index)} << 16;
    default:
      return std::bit_cast<uint32_t>(HalfToFloat(LoadAt<uint16_t>(bytes, index)));
  }
}

// Returns the value that was stored, as fp32 bits.
uint32_t StoreRounded(TensorDtype dtype, SplitFloat split, char* bytes, int64_t index) {
  if (dtype == TensorDtype::kBf16) {
    StoreAt<uint16_t>(bytes, index, split.hi);
    return uint32_t{split.hi} << 16;
  }
  const uint32_t bits = JoinBits(split);
  if (dtype == TensorDtype::kF32) {
    StoreAt<uint32_t>(bytes, index, bits);
    return bits;
  }
  const uint16_t half = FloatToHalf(std::bit_cast<float>(bits));
  StoreAt<uint16_t>(bytes, index, half);
  return std::bit_cast<uint32_t>(HalfToFloat(half));
}

bool IsReadable(TensorDtype dtype) {
  return dtype == TensorDtype::kF32 || dtype == TensorDtype::kBf16 || dtype == TensorDtype::kF16;
}

}  // namespace

float HalfToFloat(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16;
  const uint32_t exponent = half >> 10 & 0x1f;
  const uint32_t fraction = half & 0x3ff;
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24, which fp32 holds exactly
    const float magnitude = std::ldexp(static_cast<float>(fraction), -24);
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  const uint32_t wide_exponent = exponent == 0x1f ? 0xff : exponent + (127 - 15);
  return std::bit_cast<float>(sign | wide_exponent << 23 | fraction << kMantissaShift);
}

uint16_t FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits & kSignBit) >> 16;
  const uint32_t magnitude = bits & ~kSignBit;
  if (magnitude >= 0x7f800000u) {  // infinity or NaN
    return static_cast<uint16_t>(sign | (magnitude > 0x7f800000u ? 0x7e00 : 0x7c00));
  }
  if (magnitude >= 0x477ff000u) {  // 65520: rounds above the greatest half
    return static_cast<uint16_t>(sign | 0x7c00);
  }
  if (magnitude < 0x38800000u) {  // below 2^-14: units of 2^-24, rounded by the FPU
    const float units = std::nearbyint(std::ldexp(std::bit_cast<float>(magnitude), 24));
    return static_cast<uint16_t>(sign | static_cast<uint32_t>(units));
  }
  const uint32_t rebased = magnitude - (uint32_t{127 - 15} << 23);
  const uint32_t odd = rebased >> kMantissaShift & 1;
  return static_cast<uint16_t>(sign | (rebased + 0xfff + odd) >> kMantissaShift);
}

int64_t DecodeElements(TensorDtype dtype, const char* bytes, int64_t count, uint16_t* hi,
                       int16_t* lo) {
  MT_CHECK(IsReadable(dtype));
  int64_t nonfinite = -1;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = LoadBits(dtype, bytes, i);
    if (!IsFinite(bits) && nonfinite < 0) {
      nonfinite = i;
    }
    const SplitFloat split = SplitBits(bits);
    hi[i] = split.hi;
    lo[i] = split.lo;
  }
  return nonfinite;
}

int64_t EncodeElements(TensorDtype dtype, const uint16_t* hi, const int16_t* lo, int64_t count,
                       char* bytes) {
  MT_CHECK(IsReadable(dtype));
  int64_t nonfinite = -1;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t stored = StoreRounded(dtype, {.hi = hi[i], .lo = lo[i]}, bytes, i);
    if (!IsFinite(stored) && nonfinite < 0) {
      nonfinite = i;
    }
  }
  return nonfinite;
}

}  // namespace megatrain
