#include "runtime/model_io/element_conversion.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/hoststore/split_float.h"

namespace megatrain {
namespace {

// IEEE 754's definition of a finite half.
double HalfValue(uint16_t half) {
  const int exponent = half >> 10 & 0x1f;
  const int fraction = half & 0x3ff;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return half & 0x8000 ? -magnitude : magnitude;
}

bool IsFiniteHalf(uint32_t half) { return (half & 0x7c00) != 0x7c00; }

TEST(ElementConversionTest, EveryHalfIsExactAndComesBack) {
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const float value = HalfToFloat(static_cast<uint16_t>(half));
    if (!IsFiniteHalf(half)) {
      EXPECT_EQ(std::isnan(value), (half & 0x3ff) != 0);
      EXPECT_EQ(std::isinf(value), (half & 0x3ff) == 0);
      continue;
    }
    ASSERT_EQ(value, HalfValue(static_cast<uint16_t>(half))) << half;
    ASSERT_EQ(std::signbit(value), (half & 0x8000) != 0);
    ASSERT_EQ(FloatToHalf(value), half);
  }
}

// Between two neighbours: a bit below, at and a bit above the middle.
TEST(ElementConversionTest, HalvesRoundToTheNearestTiesToEven) {
  for (uint16_t low = 0; low < 0x7bff; ++low) {
    const uint16_t high = static_cast<uint16_t>(low + 1);
    const float middle = (HalfToFloat(low) + HalfToFloat(high)) / 2;
    ASSERT_EQ(FloatToHalf(middle), low % 2 == 0 ? low : high) << low;
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, 0.0f)), low) << low;
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, 1e9f)), high) << low;
    ASSERT_EQ(FloatToHalf(-std::nextafter(middle, 1e9f)), high | 0x8000) << low;
  }
  EXPECT_EQ(FloatToHalf(std::nextafter(65520.0f, 0.0f)), 0x7bff);
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7c00);
  EXPECT_EQ(FloatToHalf(-1e30f), 0xfc00);
  EXPECT_EQ(FloatToHalf(1e-30f), 0);
  EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(std::nanf("")))));
}

TEST(ElementConversionTest, WhatIsDecodedIsEncodedInTheSameBits) {
  for (TensorDtype dtype : {TensorDtype::kBf16, TensorDtype::kF16}) {
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      const uint16_t word = static_cast<uint16_t>(bits);
      char bytes[2];
      std::memcpy(bytes, &word, 2);
      uint16_t hi = 0;
      int16_t lo = 0;
      char back[2];
      const bool finite = DecodeElements(dtype, bytes, 1, &hi, &lo) < 0;
      const bool stays_finite = EncodeElements(dtype, &hi, &lo, 1, back) < 0;
      ASSERT_EQ(finite, stays_finite) << bits;
      ASSERT_TRUE(!finite || std::memcmp(bytes, back, 2) == 0) << bits;
    }
  }
}

TEST(ElementConversionTest, NonFiniteElementsAreFound) {
  std::vector<float> values = {1.0f, -2.0f, 3.4e38f, 1e-42f, 70000.0f};
  std::vector<uint16_t> hi(values.size());
  std::vector<int16_t> lo(values.size());
  std::vector<char> bytes(values.size() * 4);
  std::memcpy(bytes.data(), values.data(), bytes.size());
  const int64_t count = static_cast<int64_t>(values.size());
  EXPECT_EQ(DecodeElements(TensorDtype::kF32, bytes.data(), count, hi.data(), lo.data()), -1);
  std::vector<char> out(bytes.size());
  EXPECT_EQ(EncodeElements(TensorDtype::kF32, hi.data(), lo.data(), count, out.data()), -1);
  EXPECT_EQ(out, bytes);
  EXPECT_EQ(EncodeElements(TensorDtype::kBf16, hi.data(), lo.data(), count, out.data()), 2);
  EXPECT_EQ(EncodeElements(TensorDtype::kF16, hi.data() + 3, lo.data() + 3, 2, out.data()), 1);
  values[1] = std::numeric_limits<float>::infinity();
  std::memcpy(bytes.data(), values.data(), bytes.size());
  EXPECT_EQ(DecodeElements(TensorDtype::kF32, bytes.data(), count, hi.data(), lo.data()), 1);
}

}  // namespace
}  // namespace megatrain
