#include "runtime/ops/cross_entropy.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/log_softmax.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "runtime/ops/gradient_check.h"

namespace megatrain {
namespace {

constexpr int kSeed = 16;

TEST(CrossEntropy, AgreesWithFloat64) {
  std::mt19937 random(kSeed);
  constexpr int64_t kRows = 9;
  constexpr int64_t kVocab = 1000;
  constexpr double kScale = 1.0 / 37;
  const at::Tensor logits = RandomNormal({kRows, kVocab}, at::kFloat, random).mul(8);
  std::vector<int32_t> targets;
  for (int64_t i = 0; i < kRows; ++i) {
    targets.push_back(static_cast<int32_t>(random() % kVocab));
  }
  const at::Tensor index = at::from_blob(targets.data(), {kRows, 1}, at::kInt).to(at::kLong);
  const at::Tensor scale = logits.narrow(1, 0, 1).mul(0).add(kScale);
  const Reference reference = Differentiate(
      [&](const std::vector<at::Tensor>& in) {
        return at::log_softmax(in[0], 1).gather(1, index).neg();
      },
      {logits}, scale);

  const at::Tensor work = logits.to(at::kFloat);
  std::vector<double> losses(kRows);
  const at::Tensor row_sum = CrossEntropyForward(work, targets, losses);
  for (int64_t i = 0; i < kRows; ++i) {
    EXPECT_NEAR(losses[i], reference.output[i][0].item().toDouble(), 1e-5) << i;
  }
  CrossEntropyBackward(work, row_sum, targets, kScale);
  EXPECT_LT(RelativeError(work, reference.gradients[0]), 1e-6);
}

TEST(CrossEntropy, LargeLogitsDoNotOverflow) {
  const at::Tensor logits = at::arange(4, at::kFloat).mul(1e30).view({1, 4});
  std::vector<double> losses(1);
  CrossEntropyForward(logits, std::vector<int32_t>{3}, losses);
  EXPECT_EQ(losses[0], 0.0);
}

TEST(CrossEntropy, ARowThatIsNotFiniteSaysSoAndLeavesTheOthers) {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    const at::Tensor logits = at::arange(12, at::kFloat).view({3, 4});
    logits[1][2] = bad;
    std::vector<double> losses(3);
    CrossEntropyForward(logits, std::vector<int32_t>{0, 0, 0}, losses);
    EXPECT_FALSE(std::isfinite(losses[1]));
    EXPECT_NEAR(losses[0], 3.4401896, 1e-6);
    EXPECT_EQ(losses[0], losses[2]);
  }
}

}  // namespace
}  // namespace megatrain
