#include "runtime/kernels/split_float_kernel.h"

#include <bit>
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/hoststore/split_float.h"
#include "runtime/kernels/device_array_for_test.h"

namespace megatrain {
namespace {

// Splits every word on the CPU; the GPU must give it back. Bytes are shifted to hit each path.
void ExpectJoinUndoesSplit(const std::vector<uint32_t>& bits, int64_t lo_offset) {
  const int64_t count = static_cast<int64_t>(bits.size());
  std::vector<uint16_t> upper;
  std::vector<int16_t> rest(lo_offset);
  for (const uint32_t word : bits) {
    const SplitFloat split = SplitBits(word);
    upper.push_back(split.hi);
    rest.push_back(split.lo);
  }
  DeviceArray<uint16_t> hi(upper);
  DeviceArray<int16_t> lo(rest);
  DeviceArray<uint32_t> joined(count, 16);
  ASSERT_TRUE(LaunchJoinFloats(hi.data(), lo.data() + lo_offset,
                               reinterpret_cast<float*>(joined.data()), count, nullptr)
                  .ok());
  const std::vector<uint32_t> words = joined.Download();
  for (int64_t i = 0; i < count; ++i) {
    ASSERT_EQ(words[i], bits[i]) << i << " of " << count;
  }
}

TEST(JoinFloatsKernelTest, EveryUpperHalfAndTheEdgesOfTheLower) {
  std::vector<uint32_t> bits;
  for (uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (const uint32_t lower : {0x0000, 0x0001, 0x7fff, 0x8000, 0x8001, 0xffff}) {
      bits.push_back(upper << 16 | lower);
    }
  }
  ExpectJoinUndoesSplit(bits, 0);
}

TEST(JoinFloatsKernelTest, AnySizeAndAnyPlaceOfTheLowerPlane) {
  std::mt19937 random(6);
  for (const int64_t count : {1, 7, 8, 9, 2047, 2048, 2049, 1'000'003}) {
    std::vector<uint32_t> bits(count);
    for (uint32_t& word : bits) {
      word = random();
    }
    for (const int64_t lo_offset : {0, 1, 8}) {
      ExpectJoinUndoesSplit(bits, lo_offset);
    }
  }
}

TEST(JoinFloatsKernelTest, NothingToJoinIsNoError) {
  EXPECT_TRUE(LaunchJoinFloats(nullptr, nullptr, nullptr, 0, nullptr).ok());
}

}  // namespace
}  // namespace megatrain
