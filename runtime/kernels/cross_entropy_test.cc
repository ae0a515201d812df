#include "runtime/kernels/cross_entropy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "runtime/kernels/device_array_for_test.h"
#include "runtime/kernels/scratch_size.h"

namespace megatrain {
namespace {

constexpr float kScale = 0.125f;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
// Odd, fewer than the threads of a row, a real one, and more than a cluster's registers hold.
constexpr int64_t kVocabs[] = {1, 3, 1001, 4096, 50257, 152064, 200000};

class CrossEntropyTest : public testing::TestWithParam<ComputeDtype> {};

struct Case {
  int64_t rows;
  int64_t vocab;
  std::vector<float> logits;
  std::vector<int32_t> targets;
};

// The first and the last column are targets too.
Case MakeCase(int64_t vocab) {
  Case input = {.rows = 5, .vocab = vocab};
  input.logits = RandomNumbers(ComputeDtype::kFloat32, input.rows * vocab, 51, 5);
  for (float& logit : input.logits) {
    logit += 40;  // the largest must be taken off before exp
  }
  input.targets = {0, static_cast<int32_t>(vocab - 1), static_cast<int32_t>(vocab / 2),
                   static_cast<int32_t>(vocab / 3), 0};
  return input;
}

struct Result {
  std::vector<float> losses;
  std::vector<float> gradient;
};

Result RunKernel(ComputeDtype dtype, const Case& input, int64_t shift_bytes) {
  DeviceArray<float> logits(input.logits, shift_bytes);
  DeviceArray<int32_t> targets(input.targets);
  DeviceArray<float> losses(input.rows);
  DeviceNumbers gradient(dtype, input.rows * input.vocab, shift_bytes);
  const absl::Status status = LaunchCrossEntropy({.logits = logits.data(),
                                                  .targets = targets.data(),
                                                  .losses = losses.data(),
                                                  .gradient = gradient.data(),
                                                  .gradient_stride = input.vocab,
                                                  .scale = kScale,
                                                  .rows = input.rows,
                                                  .vocab = input.vocab,
                                                  .dtype = dtype},
                                                 nullptr);
  EXPECT_TRUE(status.ok()) << status;
  const std::vector<float> after = logits.Download();
  EXPECT_EQ(std::memcmp(after.data(), input.logits.data(), after.size() * sizeof(float)), 0);
  return {losses.Download(), gradient.Download()};
}

void ExpectFloat64(ComputeDtype dtype, const Case& input, const Result& result) {
  std::vector<double> losses(input.rows);
  std::vector<double> gradient(input.rows * input.vocab);
  for (int64_t row = 0; row < input.rows; ++row) {
    const float* logits = &input.logits[row * input.vocab];
    const double largest = *std::max_element(logits, logits + input.vocab);
    double sum = 0;
    for (int64_t i = 0; i < input.vocab; ++i) {
      sum += std::exp(logits[i] - largest);
    }
    losses[row] = largest + std::log(sum) - logits[input.targets[row]];
    for (int64_t i = 0; i < input.vocab; ++i) {
      const double probability = std::exp(logits[i] - largest) / sum;
      gradient[row * input.vocab + i] = (probability - (i == input.targets[row])) * kScale;
    }
  }
  ExpectNear(result.losses, losses, 1e-6, 4e-6);
  ExpectNear(result.gradient, gradient, RelativeTolerance(dtype) + 1e-5, 1e-7);
}

TEST_P(CrossEntropyTest, AgreesWithFloat64) {
  for (const int64_t vocab : kVocabs) {
    SCOPED_TRACE(vocab);
    const Case input = MakeCase(vocab);
    const Result result = RunKernel(GetParam(), input, 0);
    ExpectFloat64(GetParam(), input, result);
    const Result again = RunKernel(GetParam(), input, 64);
    EXPECT_EQ(again.losses, result.losses);
    EXPECT_EQ(again.gradient, result.gradient);
  }
}

TEST_P(CrossEntropyTest, LossAlone) {
  const Case input = MakeCase(1000);
  DeviceArray<float> logits(input.logits);
  DeviceArray<int32_t> targets(input.targets);
  DeviceArray<float> losses(input.rows);
  const absl::Status status = LaunchCrossEntropy({.logits = logits.data(),
                                                  .targets = targets.data(),
                                                  .losses = losses.data(),
                                                  .gradient = nullptr,
                                                  .scale = kScale,
                                                  .rows = input.rows,
                                                  .vocab = input.vocab,
                                                  .dtype = GetParam()},
                                                 nullptr);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(losses.Download(), RunKernel(GetParam(), input, 0).losses);
}

TEST_P(CrossEntropyTest, BadLogitsGiveNonFiniteLossesOfTheirRowAlone) {
  for (const float bad : {std::nanf(""), kInfinity}) {
    SCOPED_TRACE(bad);
    Case input = MakeCase(5000);
    input.logits[1 * input.vocab + 4321] = bad;
    const Result result = RunKernel(GetParam(), input, 0);
    EXPECT_FALSE(std::isfinite(result.losses[1]));
    const std::vector<float> good = RunKernel(GetParam(), MakeCase(5000), 0).losses;
    for (const int row : {0, 2, 3, 4}) {
      EXPECT_EQ(result.losses[row], good[row]) << row;
    }
  }
}

TEST_P(CrossEntropyTest, ImpossibleTokensHaveNoGradient) {
  Case input = MakeCase(600);
  for (int64_t row = 0; row < input.rows; ++row) {
    input.logits[row * input.vocab + 77] = -kInfinity;
  }
  const Result result = RunKernel(GetParam(), input, 0);
  for (int64_t row = 0; row < input.rows; ++row) {
    EXPECT_TRUE(std::isfinite(result.losses[row])) << row;
    EXPECT_EQ(result.gradient[row * input.vocab + 77], 0) << row;
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, CrossEntropyTest,
                         testing::Values(ComputeDtype::kFloat32, ComputeDtype::kBfloat16),
                         [](const auto& info) { return DtypeName(info.param); });

// The elements of `dtype` at the start of each of `rows` rows of floats.
std::vector<float> LeadingElements(ComputeDtype dtype, const std::vector<float>& floats,
                                   int64_t rows) {
  if (dtype == ComputeDtype::kFloat32) {
    return floats;
  }
  std::vector<float> values;
  const int64_t width = static_cast<int64_t>(floats.size()) / rows;
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<__nv_bfloat16> elements(width);
    std::memcpy(static_cast<void*>(elements.data()), &floats[row * width],
                width * sizeof(__nv_bfloat16));
    for (const __nv_bfloat16 element : elements) {
      values.push_back(__bfloat162float(element));
    }
  }
  return values;
}

TEST_P(CrossEntropyTest, GradientMayTakeThePlaceOfTheLogits) {
  const int64_t floats_elements = static_cast<int64_t>(sizeof(float)) / SizeBytes(GetParam());
  for (const int64_t vocab : {int64_t{1001}, int64_t{152064}, int64_t{200000}, kMaxVocabInPlace}) {
    SCOPED_TRACE(vocab);
    const Case input = MakeCase(vocab);
    DeviceArray<float> logits(input.logits);
    DeviceArray<int32_t> targets(input.targets);
    DeviceArray<float> losses(input.rows);
    const absl::Status status = LaunchCrossEntropy({.logits = logits.data(),
                                                    .targets = targets.data(),
                                                    .losses = losses.data(),
                                                    .gradient = logits.data(),
                                                    .gradient_stride = vocab * floats_elements,
                                                    .scale = kScale,
                                                    .rows = input.rows,
                                                    .vocab = vocab,
                                                    .dtype = GetParam()},
                                                   nullptr);
    ASSERT_TRUE(status.ok()) << status;
    const Result apart = RunKernel(GetParam(), input, 0);
    EXPECT_EQ(losses.Download(), apart.losses);
    EXPECT_EQ(LeadingElements(GetParam(), logits.Download(), input.rows), apart.gradient);
  }
}

HeadResult Sum(const std::vector<float>& losses, int64_t shift_bytes) {
  DeviceArray<float> device_losses(losses, shift_bytes);
  DeviceArray<HeadResult> result(1);
  const absl::Status status =
      LaunchSumLosses(device_losses.data(), device_losses.count(), result.data(), nullptr);
  EXPECT_TRUE(status.ok()) << status;
  return result.Download()[0];
}

TEST(SumLossesTest, AgreesWithFloat64) {
  for (const int64_t count : {0, 1, 31, 1025, 70001}) {
    SCOPED_TRACE(count);
    const std::vector<float> losses = RandomNumbers(ComputeDtype::kFloat32, count, 61);
    double expected = 0;
    for (const float loss : losses) {
      expected += loss;
    }
    const HeadResult result = Sum(losses, 0);
    EXPECT_NEAR(result.loss_sum, expected, 1e-9);
    EXPECT_EQ(result.first_nonfinite, -1);
    EXPECT_EQ(Sum(losses, 64).loss_sum, result.loss_sum);
  }
}

TEST(SumLossesTest, FindsTheFirstLossThatIsNotFinite) {
  std::vector<float> losses = RandomNumbers(ComputeDtype::kFloat32, 5000, 62);
  losses[4999] = kInfinity;
  losses[3001] = std::nanf("");
  losses[2500] = -kInfinity;
  EXPECT_EQ(Sum(losses, 0).first_nonfinite, 2500);
  losses[0] = kInfinity;
  EXPECT_EQ(Sum(losses, 0).first_nonfinite, 0);
}

}  // namespace
}  // namespace megatrain
