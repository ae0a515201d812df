#include "runtime/optimizer/adamw.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "hwy/highway.h"
#include "runtime/hoststore/split_float.h"
#include "runtime/optimizer/random_finite_for_test.h"

namespace megatrain {
namespace {

// One unit's planes, apart from a store.
struct State {
  std::vector<uint16_t> hi;
  std::vector<int16_t> lo;
  std::vector<float> moment1;
  std::vector<float> moment2;
  std::vector<float> gradient;
  std::vector<uint16_t> gradient16;

  explicit State(size_t count)
      : hi(count), lo(count), moment1(count), moment2(count), gradient(count), gradient16(count) {}

  AdamWSpan Span(int gradient_bytes, int64_t first, int64_t count) {
    const void* gradients = gradient_bytes == 4 ? static_cast<const void*>(gradient.data() + first)
                                                : gradient16.data() + first;
    return {hi.data() + first,
            lo.data() + first,
            moment1.data() + first,
            moment2.data() + first,
            gradients,
            gradient_bytes,
            count};
  }

  bool SameBits(const State& other) const {
    const auto same = [](const auto& a, const auto& b) {
      return std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0;
    };
    return same(hi, other.hi) && same(lo, other.lo) && same(moment1, other.moment1) &&
           same(moment2, other.moment2);
  }
};

// Marsaglia's xorshift: quick, so that millions of inputs cost little.
class Xorshift {
 public:
  explicit Xorshift(uint32_t seed) : state_(seed * 2654435761u + 1u) {}

  uint32_t operator()() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 17;
    state_ ^= state_ << 5;
    return state_;
  }

 private:
  uint32_t state_;
};

State RandomState(int seed, size_t count) {
  Xorshift random(static_cast<uint32_t>(seed));
  State state(count);
  for (size_t i = 0; i < count; ++i) {
    const SplitFloat weight = Split(RandomFinite(random, false));
    state.hi[i] = weight.hi;
    state.lo[i] = weight.lo;
    state.moment1[i] = RandomFinite(random, false);
    state.moment2[i] = RandomFinite(random, true);
    state.gradient[i] = RandomFinite(random, false);
    state.gradient16[i] = Split(state.gradient[i]).hi;
  }
  return state;
}

// The contract of adamw.h in plain code, one rounding an operation.
void Reference(const AdamWSpan& span, const AdamWStep& step) {
  const float scale = static_cast<float>(step.gradient_scale);
  const float decay = static_cast<float>(1.0 - step.learning_rate * step.weight_decay);
  const float weight1 = static_cast<float>(1.0 - step.beta1);
  const float beta2 = static_cast<float>(step.beta2);
  const float weight2 = static_cast<float>(1.0 - step.beta2);
  const float correction2 = static_cast<float>(std::sqrt(1.0 - std::pow(step.beta2, step.step)));
  const float epsilon = static_cast<float>(step.epsilon);
  const float size =
      static_cast<float>(-step.learning_rate / (1.0 - std::pow(step.beta1, step.step)));
  for (int64_t i = 0; i < span.count; ++i) {
    const float raw = span.gradient_bytes == 4
                          ? static_cast<const float*>(span.gradient)[i]
                          : JoinFloat(static_cast<const uint16_t*>(span.gradient)[i], 0);
    const float g = raw * scale;
    const float p = JoinFloat(span.hi[i], span.lo[i]) * decay;
    const float m = span.moment1[i] + weight1 * (g - span.moment1[i]);
    const float square = weight2 * g * g;
    const float v = span.moment2[i] * beta2 + square;
    const float denominator = std::sqrt(v) / correction2 + epsilon;
    const float moved = p + size * m / denominator;
    span.moment1[i] = m;
    span.moment2[i] = v;
    const SplitFloat split = Split(moved);
    span.hi[i] = split.hi;
    span.lo[i] = split.lo;
  }
}

const AdamWStep kSteps[] = {
    {},
    {.learning_rate = 3e-4, .weight_decay = 0.1, .step = 7, .gradient_scale = 0.37},
    {.learning_rate = 1.0, .beta1 = 0.0, .beta2 = 0.999, .epsilon = 1e-30, .step = 100'000},
};

// Leaves the normal choice of instruction set behind.
class ForcedTarget {
 public:
  explicit ForcedTarget(int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  ~ForcedTarget() {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

// What the target computes, against plain code; `state` stays as it is.
void ExpectReferenceBits(int64_t target, const State& state, const State& expected,
                         int gradient_bytes, const AdamWStep& step) {
  const ForcedTarget forced(target);
  State updated = state;
  UpdateSpan(updated.Span(gradient_bytes, 0, static_cast<int64_t>(state.hi.size())), step);
  EXPECT_TRUE(updated.SameBits(expected))
      << hwy::TargetName(target) << ", gradient of " << gradient_bytes << " bytes";
}

TEST(AdamWTest, EveryInstructionSetGivesTheBitsOfPlainCode) {
  const int64_t count = (int64_t{1} << 18) + 13;
  const State initial = RandomState(/*seed=*/1234, count);
  std::vector<int64_t> targets = hwy::SupportedAndGeneratedTargets();
  targets.push_back(HWY_EMU128);
  for (const AdamWStep& step : kSteps) {
    for (int gradient_bytes : {4, 2}) {
      State expected = initial;
      Reference(expected.Span(gradient_bytes, 0, count), step);
      for (int64_t target : targets) {
        ExpectReferenceBits(target, initial, expected, gradient_bytes, step);
      }
    }
  }
}

TEST(AdamWTest, VectorsGiveTheBitsOfPlainCodeForSixteenMillionInputs) {
  const int64_t count = int64_t{1} << 20;
  for (int seed = 0; seed < 16; ++seed) {
    SCOPED_TRACE(seed);
    const State initial = RandomState(seed, count);
    State expected = initial;
    Reference(expected.Span(4, 0, count), kSteps[1]);
    for (int64_t target : {HWY_AVX2, HWY_AVX3}) {
      if ((hwy::SupportedTargets() & target) != 0) {
        ExpectReferenceBits(target, initial, expected, 4, kSteps[1]);
      }
    }
  }
}

TEST(AdamWTest, SplittingIntoSpansChangesNoBit) {
  const int64_t count = 1000;
  State whole = RandomState(5, count);
  State parts = whole;
  UpdateSpan(whole.Span(4, 0, count), kSteps[1]);
  for (int64_t first = 0, length = 1; first < count; first += length, length += 3) {
    UpdateSpan(parts.Span(4, first, std::min(length, count - first)), kSteps[1]);
  }
  EXPECT_TRUE(parts.SameBits(whole));
}

TEST(AdamWTest, TouchesNothingOutsideItsSpan) {
  State state = RandomState(6, 100);
  const State before = state;
  UpdateSpan(state.Span(4, 10, 37), kSteps[1]);
  for (size_t i = 0; i < 100; ++i) {
    const bool inside = 10 <= i && i < 47;
    const bool same = state.hi[i] == before.hi[i] && state.lo[i] == before.lo[i] &&
                      state.moment1[i] == before.moment1[i] &&
                      state.moment2[i] == before.moment2[i];
    EXPECT_TRUE(inside || same) << i;
  }
}

TEST(AdamWTest, FollowsTheAlgorithmInDoublePrecision) {
  State state(64);
  std::vector<double> p(64), m(64), v(64);
  std::mt19937 random(9);
  std::normal_distribution<float> normal;
  for (size_t i = 0; i < 64; ++i) {
    const SplitFloat weight = Split(normal(random));
    state.hi[i] = weight.hi;
    state.lo[i] = weight.lo;
    p[i] = JoinFloat(weight.hi, weight.lo);
  }
  for (int64_t t = 1; t <= 50; ++t) {
    const AdamWStep step = {.learning_rate = 1e-2, .weight_decay = 0.1, .step = t};
    for (size_t i = 0; i < 64; ++i) {
      state.gradient[i] = normal(random);
      const double g = state.gradient[i];
      p[i] *= 1.0 - 1e-2 * 0.1;
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.95 * v[i] + 0.05 * g * g;
      const double corrected = v[i] / (1.0 - std::pow(0.95, t));
      p[i] -= 1e-2 * (m[i] / (1.0 - std::pow(0.9, t))) / (std::sqrt(corrected) + 1e-8);
    }
    UpdateSpan(state.Span(4, 0, 64), step);
  }
  for (size_t i = 0; i < 64; ++i) {
    // 50 roundings of the decay factor and of the sum, 6e-8 each.
    EXPECT_NEAR(JoinFloat(state.hi[i], state.lo[i]), p[i], 3e-6 * std::max(1.0, std::fabs(p[i])));
  }
}

TEST(AdamWTest, AnUpdateFarBelowBfloat16MovesTheMaster) {
  State state(1);
  state.hi[0] = Split(1.0f).hi;
  state.gradient[0] = 1.0f;
  for (int64_t t = 1; t <= 1000; ++t) {
    UpdateSpan(state.Span(4, 0, 1), {.learning_rate = 1e-5, .step = t});
  }
  EXPECT_NEAR(JoinFloat(state.hi[0], state.lo[0]), 0.99, 1e-4);
}

}  // namespace
}  // namespace megatrain
