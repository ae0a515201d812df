#include "runtime/kernels/gradient_math.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/kernels/device_array_for_test.h"

namespace megatrain {
namespace {

constexpr int64_t kCounts[] = {1,    2,    3,    5,      255,    1023,      1024,      4095,
                               4096, 4097, 8191, 16'385, 65'536, 1'000'003, 20'000'001};

TEST(AddToTest, AddsElementByElement) {
  for (const int64_t count : kCounts) {
    const auto a = RandomNumbers(ComputeDtype::kFloat32, count, 1);
    const auto b = RandomNumbers(ComputeDtype::kFloat32, count, 2);
    DeviceArray<float> target(a, 16);
    DeviceArray<float> source(b);
    ASSERT_TRUE(LaunchAddTo(target.data(), source.data(), count, nullptr).ok());
    const std::vector<float> sums = target.Download();
    for (int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(sums[i], a[i] + b[i]) << i << " of " << count;
    }
    EXPECT_EQ(source.Download(), b);
  }
}

double SumOfSquares(const std::vector<float>& values, int64_t shift_bytes) {
  DeviceArray<float> input(values, shift_bytes);
  DeviceArray<double> sum(1);
  DeviceArray<unsigned char> scratch(kSumsOfSquaresScratchBytes);
  const ValueRange all = {.offset = 0, .count = static_cast<int64_t>(values.size())};
  EXPECT_TRUE(
      LaunchSumsOfSquares(input.data(), {&all, 1}, sum.data(), scratch.data(), nullptr).ok());
  return sum.Download()[0];
}

TEST(SumOfSquaresTest, IsThatOfFp64) {
  for (const int64_t count : kCounts) {
    const auto values = RandomNumbers(ComputeDtype::kFloat32, count, 3, 1e-3f);
    long double expected = 0;
    for (const float value : values) {
      expected += static_cast<long double>(value) * value;
    }
    EXPECT_NEAR(SumOfSquares(values, 0), expected, 1e-13 * static_cast<double>(expected)) << count;
  }
}

TEST(SumOfSquaresTest, EveryElementCounts) {
  for (const int64_t count : {1, 7, 4097, 1'000'003}) {
    for (const int64_t place : {int64_t{0}, count / 2, count - 1}) {
      std::vector<float> values(count);
      values[place] = -3;
      EXPECT_EQ(SumOfSquares(values, 0), 9.0) << place << " of " << count;
    }
  }
}

TEST(SumOfSquaresTest, TheBitsDependOnTheValuesAlone) {
  const auto values = RandomNumbers(ComputeDtype::kFloat32, 3'000'001, 4);
  const double first = SumOfSquares(values, 0);
  for (const int64_t shift_bytes : {0, 16, 64, 4096 + 48}) {
    EXPECT_EQ(std::bit_cast<uint64_t>(SumOfSquares(values, shift_bytes)),
              std::bit_cast<uint64_t>(first));
  }
}

// More ranges than are summed at once, of many sizes.
TEST(SumOfSquaresTest, ManyRangesHaveTheBitsOfEach) {
  std::vector<ValueRange> ranges;
  std::vector<float> values;
  for (int i = 0; i < 2 * kSumsAtOnce + 3; ++i) {
    const int64_t count = i % 7 == 0 ? 0 : int64_t{1} << (i % 21);
    ranges.push_back({.offset = static_cast<int64_t>(values.size()), .count = count});
    const auto numbers = RandomNumbers(ComputeDtype::kFloat32, count, i);
    values.insert(values.end(), numbers.begin(), numbers.end());
    values.resize((values.size() + 63) / 64 * 64);
  }
  DeviceArray<float> input(values, 0);
  DeviceArray<double> sums(std::ssize(ranges));
  DeviceArray<unsigned char> scratch(kSumsOfSquaresScratchBytes);
  ASSERT_TRUE(LaunchSumsOfSquares(input.data(), ranges, sums.data(), scratch.data(), nullptr).ok());
  const std::vector<double> found = sums.Download();
  for (size_t i = 0; i < ranges.size(); ++i) {
    const auto begin = values.begin() + ranges[i].offset;
    EXPECT_EQ(std::bit_cast<uint64_t>(found[i]),
              std::bit_cast<uint64_t>(SumOfSquares({begin, begin + ranges[i].count}, 0)))
        << i;
  }
}

TEST(SumOfSquaresTest, HugeAndNonFiniteValues) {
  EXPECT_GT(SumOfSquares(std::vector<float>(10, 3e38f), 0), 8e77);
  EXPECT_TRUE(std::isinf(SumOfSquares({1.0f, std::numeric_limits<float>::infinity()}, 0)));
  EXPECT_TRUE(std::isnan(SumOfSquares({std::numeric_limits<float>::quiet_NaN(), 1.0f}, 0)));
  EXPECT_EQ(SumOfSquares({}, 0), 0.0);
}

// As the CPU's code rounds: to the nearest, ties to even, NaN stays one.
uint16_t Rounded(uint32_t bits) {
  if ((bits & 0x7fffffff) > 0x7f800000) {
    return static_cast<uint16_t>(bits >> 16 | 0x40);
  }
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

TEST(RoundToBfloat16Test, RoundsEveryKindOfNumberInPlaceAndElsewhere) {
  std::mt19937 random(5);
  for (const int64_t count : kCounts) {
    std::vector<uint32_t> bits(count);
    for (uint32_t& word : bits) {
      word = random();
      if (word % 3 == 0) {
        word = (word & 0xffff0000) | 0x8000;  // a tie
      }
    }
    DeviceArray<uint32_t> values(bits, 16);
    ASSERT_TRUE(
        LaunchRoundToBfloat16InPlace(reinterpret_cast<float*>(values.data()), count, nullptr).ok());
    const std::vector<uint32_t> words = values.Download();
    const auto* packed = reinterpret_cast<const uint16_t*>(words.data());
    DeviceArray<uint32_t> source(bits, 16);
    DeviceArray<uint16_t> copy(count, 16);
    ASSERT_TRUE(LaunchRoundToBfloat16(reinterpret_cast<const float*>(source.data()), copy.data(),
                                      count, nullptr)
                    .ok());
    const std::vector<uint16_t> copied = copy.Download();
    for (int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(packed[i], Rounded(bits[i])) << i << " of " << count << ": " << bits[i];
      ASSERT_EQ(copied[i], Rounded(bits[i])) << i << " of " << count << ": " << bits[i];
    }
  }
}

TEST(RoundToBfloat16Test, EveryUpperHalfAndTheEdgesOfTheLower) {
  std::vector<uint32_t> bits;
  for (uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (const uint32_t lower : {0x0000, 0x0001, 0x7fff, 0x8000, 0x8001, 0xffff}) {
      bits.push_back(upper << 16 | lower);
    }
  }
  DeviceArray<uint32_t> values(bits);
  ASSERT_TRUE(
      LaunchRoundToBfloat16InPlace(reinterpret_cast<float*>(values.data()), values.count(), nullptr)
          .ok());
  const std::vector<uint32_t> words = values.Download();
  const auto* packed = reinterpret_cast<const uint16_t*>(words.data());
  for (size_t i = 0; i < bits.size(); ++i) {
    ASSERT_EQ(packed[i], Rounded(bits[i])) << std::hex << bits[i];
  }
}

// The first of 100 rows with a bad value, of all that `bad` names by row and column.
template <typename T>
int32_t FirstRow(int64_t width, T value, T infinity, std::vector<std::pair<int, int>> bad) {
  constexpr int64_t kRows = 100;
  std::vector<T> values(kRows * width, value);
  for (const auto& [row, column] : bad) {
    values[row * width + column] = infinity;
  }
  DeviceArray<T> input(values, 16);
  DeviceArray<int32_t> first(1);
  first.Upload({77});
  EXPECT_TRUE(
      LaunchFindNonFiniteRow(
          {.values = input.data(), .element_bytes = sizeof(T), .rows = kRows, .width = width},
          first.data(), nullptr)
          .ok());
  return first.Download()[0];
}

template <typename T>
void ExpectRowsAreFound(T largest, T infinity, T nan) {
  for (const int width : {1, 5, 8, 64, 1000, 1024}) {
    EXPECT_EQ(FirstRow<T>(width, largest, infinity, {}), -1) << width;
    EXPECT_EQ(FirstRow<T>(width, largest, infinity, {{0, 0}}), 0) << width;
    EXPECT_EQ(FirstRow<T>(width, largest, infinity, {{99, width - 1}}), 99) << width;
    EXPECT_EQ(FirstRow<T>(width, largest, nan, {{57, width / 2}, {98, 0}}), 57) << width;
  }
}

TEST(FindNonFiniteRowTest, TheFirstRowInBothTypes) {
  ExpectRowsAreFound<uint16_t>(0xff7f, 0xff80, 0x7f81);
  ExpectRowsAreFound<uint32_t>(0x7f7fffff, 0x7f800000, 0xff800001);
}

}  // namespace
}  // namespace megatrain
