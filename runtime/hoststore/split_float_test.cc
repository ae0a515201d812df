#include "runtime/hoststore/split_float.h"

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace megatrain {
namespace {

void ExpectExact(uint32_t bits) {
  const uint32_t back = JoinBits(SplitBits(bits));
  if (back != bits) {
    ADD_FAILURE() << std::hex << bits << " came back as " << back;
  }
}

float AsBfloat16(uint16_t hi) { return std::bit_cast<float>(uint32_t{hi} << 16); }

TEST(SplitFloatTest, EveryUpperHalfWithEveryEdgeOfTheLowerHalfIsExact) {
  constexpr std::array<uint32_t, 9> kEdges = {0,      1,      0x7ffe, 0x7fff, 0x8000,
                                              0x8001, 0xfffe, 0xffff, 0x5555};
  for (uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (uint32_t lower : kEdges) {
      ExpectExact(upper << 16 | lower);
    }
  }
}

TEST(SplitFloatTest, RandomPatternsAreExact) {
  const int seed = 42;
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 1 << 24; ++i) {
    ExpectExact(static_cast<uint32_t>(random()));
  }
}

TEST(SplitFloatTest, HiIsTheNearestBfloat16) {
  std::mt19937 random(43);
  for (int i = 0; i < 1 << 20; ++i) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (!(std::fabs(value) < 3.3e38f)) {
      continue;
    }
    const uint16_t hi = Split(value).hi;
    const double error = std::fabs(double{AsBfloat16(hi)} - value);
    const uint16_t down = static_cast<uint16_t>(hi - 1);
    const uint16_t up = static_cast<uint16_t>(hi + 1);
    for (uint16_t other : {down, up}) {
      const double other_error = std::fabs(double{AsBfloat16(other)} - value);
      EXPECT_FALSE(other_error < error) << value;
    }
  }
}

TEST(SplitFloatTest, TiesGoAwayFromZero) {
  EXPECT_EQ(SplitBits(0x3f808000).hi, 0x3f81);  // 1 + 2^-8: between two bf16
  EXPECT_EQ(SplitBits(0xbf808000).hi, 0xbf81);
  EXPECT_EQ(SplitBits(0x3f808000).lo, -0x8000);
}

TEST(SplitFloatTest, ABfloat16HasNoRest) {
  for (uint32_t hi = 0; hi < 0x10000; ++hi) {
    const SplitFloat split = SplitBits(hi << 16);
    ASSERT_EQ(split.hi, hi);
    ASSERT_EQ(split.lo, 0);
  }
}

TEST(SplitFloatTest, NonFiniteValuesComeBackThoughHiAloneDoesNotTell) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(AsBfloat16(Split(infinity).hi), infinity);
  EXPECT_EQ(AsBfloat16(SplitBits(0x7f7fffff).hi), infinity);  // the greatest finite value
  EXPECT_EQ(JoinBits(SplitBits(0x7f7fffff)), 0x7f7fffffu);
  EXPECT_EQ(SplitBits(0x7fffffff).hi, 0x8000);  // a NaN, whose hi reads as -0
  EXPECT_EQ(SplitBits(0x7f800001).hi, 0x7f80);  // a NaN, whose hi reads as infinity
  EXPECT_TRUE(std::isnan(JoinFloat(SplitBits(0x7fffffff).hi, SplitBits(0x7fffffff).lo)));
}

TEST(SplitFloatTest, SpansAreSplitElementByElement) {
  const std::vector<float> values = {0.0f, -0.0f, 1.5f, -3.14159f, 1e-42f};
  std::vector<uint16_t> hi(values.size());
  std::vector<int16_t> lo(values.size());
  SplitFloats(values, hi.data(), lo.data());
  std::vector<float> back(values.size());
  JoinFloats(hi.data(), lo.data(), back);
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(std::bit_cast<uint32_t>(back[i]), std::bit_cast<uint32_t>(values[i]));
  }
}

}  // namespace
}  // namespace megatrain
