#include "runtime/kernels/adamw_kernel.h"

#include <bit>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/hoststore/split_float.h"
#include "runtime/kernels/device_array_for_test.h"
#include "runtime/optimizer/adamw.h"
#include "runtime/optimizer/random_finite_for_test.h"

namespace megatrain {
namespace {

// Every step has another scale, decay and count, so that no coefficient is 1 throughout.
constexpr AdamWStep kSteps[] = {
    {.learning_rate = 1e-3, .weight_decay = 0.1, .step = 1, .gradient_scale = 0.37},
    {.learning_rate = 2e-5, .weight_decay = 0.0, .step = 2, .gradient_scale = 1.0},
    {.learning_rate = 0.5, .epsilon = 1e-3, .weight_decay = 0.9, .step = 1000, .gradient_scale = 3},
};

struct State {
  State(size_t count, uint32_t seed)
      : hi(count), lo(count), moment1(count), moment2(count), gradient(count) {
    std::mt19937 random(seed);
    for (size_t i = 0; i < count; ++i) {
      const SplitFloat weight = Split(RandomFinite(random, false));
      hi[i] = weight.hi;
      lo[i] = weight.lo;
      moment1[i] = RandomFinite(random, false);
      moment2[i] = RandomFinite(random, true);
      gradient[i] = RandomFinite(random, false);
    }
  }

  std::vector<uint16_t> hi;
  std::vector<int16_t> lo;
  std::vector<float> moment1;
  std::vector<float> moment2;
  std::vector<float> gradient;
};

uint16_t NearestEven(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

void UpdateOnTheCpu(State& state, const AdamWStep& step, bool rounds_gradient) {
  std::vector<uint16_t> rounded;
  for (float value : state.gradient) {
    rounded.push_back(NearestEven(value));
  }
  const void* gradient = rounds_gradient ? static_cast<const void*>(rounded.data())
                                         : static_cast<const void*>(state.gradient.data());
  UpdateSpan({.hi = state.hi.data(),
              .lo = state.lo.data(),
              .moment1 = state.moment1.data(),
              .moment2 = state.moment2.data(),
              .gradient = gradient,
              .gradient_bytes = rounds_gradient ? 2 : 4,
              .count = static_cast<int64_t>(state.hi.size())},
             step);
}

template <typename T>
void ExpectSameBits(const char* plane, const std::vector<T>& actual,
                    const std::vector<T>& expected) {
  int64_t different = 0;
  size_t first = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::memcmp(&actual[i], &expected[i], sizeof(T)) != 0 && different++ == 0) {
      first = i;
    }
  }
  EXPECT_EQ(different, 0) << plane << ": first at " << first << ", " << actual[first]
                          << " instead of " << expected[first];
}

void ExpectTheBitsOfTheCpu(int64_t count, bool rounds_gradient) {
  SCOPED_TRACE(testing::Message() << count << " elements, rounds " << rounds_gradient);
  State state(count, static_cast<uint32_t>(count));
  DeviceArray<uint16_t> hi(state.hi);
  DeviceArray<int16_t> lo(state.lo, 64);
  DeviceArray<float> moment1(state.moment1, 16);
  DeviceArray<float> moment2(state.moment2);
  DeviceArray<float> gradient(state.gradient, 256);
  for (const AdamWStep& step : kSteps) {
    UpdateOnTheCpu(state, step, rounds_gradient);
    ASSERT_TRUE(LaunchAdamW({.hi = hi.data(),
                             .lo = lo.data(),
                             .moment1 = moment1.data(),
                             .moment2 = moment2.data(),
                             .gradient = gradient.data(),
                             .count = count},
                            AdamWCoefficients(step), rounds_gradient, nullptr)
                    .ok());
    ExpectSameBits("hi", hi.Download(), state.hi);
    ExpectSameBits("lo", lo.Download(), state.lo);
    ExpectSameBits("moment1", moment1.Download(), state.moment1);
    ExpectSameBits("moment2", moment2.Download(), state.moment2);
    ExpectSameBits("gradient", gradient.Download(), state.gradient);
  }
}

TEST(AdamWKernelTest, HasTheBitsOfTheCpuOnMillionsOfValues) {
  for (const bool rounds_gradient : {false, true}) {
    ExpectTheBitsOfTheCpu(int64_t{1} << 24, rounds_gradient);
  }
}

TEST(AdamWKernelTest, HasTheBitsOfTheCpuAtEverySize) {
  for (const int64_t count : {1, 2, 3, 4, 5, 7, 64, 1023, 1024, 2047, 2048, 2049, 4099, 100'003}) {
    ExpectTheBitsOfTheCpu(count, true);
    ExpectTheBitsOfTheCpu(count, false);
  }
}

TEST(AdamWKernelTest, NothingToUpdateIsNoError) {
  EXPECT_TRUE(LaunchAdamW({}, AdamWCoefficients({}), false, nullptr).ok());
}

}  // namespace
}  // namespace megatrain
