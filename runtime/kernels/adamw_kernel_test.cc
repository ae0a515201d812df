#include "runtime/kernels/adamw_kernel.h"

#include <algorithm>
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

std::vector<uint16_t> Rounded(const std::vector<float>& values) {
  std::vector<uint16_t> rounded(values.size());
  std::transform(values.begin(), values.end(), rounded.begin(), NearestEven);
  return rounded;
}

void UpdateOnTheCpu(State& state, const AdamWStep& step, bool rounds_gradient) {
  const std::vector<uint16_t> rounded = Rounded(state.gradient);
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

void ExpectTheBitsOfTheCpu(int64_t count, GradientForm form) {
  SCOPED_TRACE(testing::Message() << count << " elements, form " << static_cast<int>(form));
  State state(count, static_cast<uint32_t>(count));
  DeviceArray<uint16_t> hi(state.hi);
  DeviceArray<int16_t> lo(state.lo, 64);
  DeviceArray<float> moment1(state.moment1, 16);
  DeviceArray<float> moment2(state.moment2);
  DeviceArray<float> gradient(state.gradient, 256);
  DeviceArray<uint16_t> rounded(Rounded(state.gradient), 128);
  const bool is_bf16 = form == GradientForm::kBfloat16;
  for (const AdamWStep& step : kSteps) {
    UpdateOnTheCpu(state, step, form != GradientForm::kFloat32);
    ASSERT_TRUE(LaunchAdamW({.hi = hi.data(),
                             .lo = lo.data(),
                             .moment1 = moment1.data(),
                             .moment2 = moment2.data(),
                             .gradient = is_bf16 ? static_cast<const void*>(rounded.data())
                                                 : static_cast<const void*>(gradient.data()),
                             .gradient_form = form,
                             .count = count},
                            AdamWCoefficients(step), nullptr)
                    .ok());
    ExpectSameBits("hi", hi.Download(), state.hi);
    ExpectSameBits("lo", lo.Download(), state.lo);
    ExpectSameBits("moment1", moment1.Download(), state.moment1);
    ExpectSameBits("moment2", moment2.Download(), state.moment2);
    ExpectSameBits("gradient", gradient.Download(), state.gradient);
    ExpectSameBits("rounded gradient", rounded.Download(), Rounded(state.gradient));
  }
}

constexpr GradientForm kForms[] = {GradientForm::kFloat32, GradientForm::kFloat32ToRound,
                                   GradientForm::kBfloat16};

TEST(AdamWKernelTest, HasTheBitsOfTheCpuOnMillionsOfValues) {
  for (const GradientForm form : kForms) {
    ExpectTheBitsOfTheCpu(int64_t{1} << 24, form);
  }
}

TEST(AdamWKernelTest, HasTheBitsOfTheCpuAtEverySize) {
  for (const int64_t count : {1, 2, 3, 4, 5, 7, 64, 1023, 1024, 2047, 2048, 2049, 4099, 100'003}) {
    for (const GradientForm form : kForms) {
      ExpectTheBitsOfTheCpu(count, form);
    }
  }
}

TEST(AdamWKernelTest, NothingToUpdateIsNoError) {
  EXPECT_TRUE(LaunchAdamW({}, AdamWCoefficients({}), nullptr).ok());
}

}  // namespace
}  // namespace megatrain
