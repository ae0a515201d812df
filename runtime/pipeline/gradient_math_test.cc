#include "runtime/pipeline/gradient_math.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace megatrain {
namespace {

TEST(GradientMathTest, SumOfSquaresIsThatOfFp64) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const size_t count : {0u, 1u, 7u, 8u, 9u, 4095u, 4096u, 4097u, 20'000u}) {
    std::vector<float> values(count);
    long double expected = 0;
    for (float& value : values) {
      value = normal(random);
      expected += static_cast<long double>(value) * value;
    }
    EXPECT_NEAR(SumOfSquares(values), static_cast<double>(expected),
                1e-14 * static_cast<double>(expected));
  }
}

TEST(GradientMathTest, SumOfSquaresHoldsWhatFp32CannotSquare) {
  const std::vector<float> values = {3e38f, -3e38f};
  EXPECT_TRUE(std::isfinite(SumOfSquares(values)));
}

uint16_t Round(uint32_t bits) {
  std::vector<float> value = {std::bit_cast<float>(bits)};
  RoundToBfloat16InPlace(value);
  uint16_t rounded;
  std::memcpy(&rounded, value.data(), sizeof(rounded));
  return rounded;
}

TEST(GradientMathTest, RoundsToNearestEven) {
  EXPECT_EQ(Round(0x3f800000), 0x3f80);
  EXPECT_EQ(Round(0x3f807fff), 0x3f80);
  EXPECT_EQ(Round(0x3f808000), 0x3f80);  // a tie: to even, down
  EXPECT_EQ(Round(0x3f808001), 0x3f81);
  EXPECT_EQ(Round(0x3f818000), 0x3f82);  // a tie: to even, up
  EXPECT_EQ(Round(0xbf818000), 0xbf82);
  EXPECT_EQ(Round(0x80000000), 0x8000);
  EXPECT_EQ(Round(0x00000001), 0x0000);
  EXPECT_EQ(Round(0x7f7fffff), 0x7f80);  // beyond the largest bf16
  EXPECT_EQ(Round(0x7f800000), 0x7f80);
  EXPECT_EQ(Round(0xff800000), 0xff80);
  EXPECT_EQ(Round(0x7f800001), 0x7fc0);  // stays a NaN
  EXPECT_EQ(Round(0xffffffff), 0xffff);
}

TEST(GradientMathTest, RoundsAWholeTensorInPlace) {
  std::vector<float> values(1001);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i) - 500.0f;
  }
  const std::vector<float> before = values;
  RoundToBfloat16InPlace(values);
  std::vector<uint16_t> rounded(values.size());
  std::memcpy(rounded.data(), values.data(), rounded.size() * sizeof(uint16_t));
  for (size_t i = 0; i < rounded.size(); ++i) {
    EXPECT_EQ(rounded[i], Round(std::bit_cast<uint32_t>(before[i]))) << i;
  }
}

TEST(GradientMathTest, AddsElementByElement) {
  std::vector<float> target = {1, 2, 3};
  AddTo(target, std::vector<float>{10, 20, 30});
  EXPECT_EQ(target, (std::vector<float>{11, 22, 33}));
}

TEST(GradientMathTest, FindsTheFirstThatIsNotFinite) {
  std::vector<float> values(100, 1e38f);
  EXPECT_EQ(FirstNonFinite(values.data(), ComputeDtype::kFloat32, 100), -1);
  values[70] = std::numeric_limits<float>::quiet_NaN();
  values[50] = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(FirstNonFinite(values.data(), ComputeDtype::kFloat32, 100), 50);
  EXPECT_EQ(FirstNonFinite(values.data(), ComputeDtype::kFloat32, 50), -1);

  std::vector<uint16_t> halves = {0x7f7f, 0x0000, 0xff80, 0x7fc0};
  EXPECT_EQ(FirstNonFinite(halves.data(), ComputeDtype::kBfloat16, 4), 2);
  EXPECT_EQ(FirstNonFinite(halves.data(), ComputeDtype::kBfloat16, 2), -1);
}

}  // namespace
}  // namespace megatrain
