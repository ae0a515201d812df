#include "runtime/optimizer/learning_rate.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace megatrain {
namespace {

using ::testing::DoubleNear;
using ::testing::Pointwise;

std::vector<double> Table(LearningRateSchedule schedule) {
  std::vector<double> rates;
  for (int64_t step = 0; step < schedule.total_steps; ++step) {
    rates.push_back(LearningRate(schedule, step));
  }
  return rates;
}

void ExpectTable(LearningRateSchedule schedule, const std::vector<double>& rates) {
  EXPECT_THAT(Table(schedule), Pointwise(::testing::DoubleNear(1e-15), rates));
}

constexpr auto kConstant = LearningRateShape::kConstant;
constexpr auto kLinear = LearningRateShape::kLinear;
constexpr auto kCosine = LearningRateShape::kCosine;

TEST(LearningRateTest, WithoutWarmup) {
  ExpectTable({kConstant, 2.0, 0, 0, 4}, {2, 2, 2, 2});
  ExpectTable({kLinear, 2.0, 0, 0, 4}, {2, 1.5, 1, 0.5});
  ExpectTable({kCosine, 2.0, 0, 0, 4}, {2, 1.7071067811865475, 1, 0.2928932188134524});
}

TEST(LearningRateTest, OneWarmupStepIsAtThePeakAlready) {
  ExpectTable({kConstant, 2.0, 0, 1, 3}, {2, 2, 2});
  ExpectTable({kLinear, 2.0, 0, 1, 5}, {2, 2, 1.5, 1, 0.5});
  ExpectTable({kCosine, 2.0, 0, 1, 3}, {2, 2, 1});
}

TEST(LearningRateTest, ManyWarmupSteps) {
  ExpectTable({kConstant, 3.0, 0, 3, 5}, {1, 2, 3, 3, 3});
  ExpectTable({kLinear, 3.0, 0, 3, 6}, {1, 2, 3, 3, 2, 1});
  ExpectTable({kCosine, 3.0, 0, 3, 5}, {1, 2, 3, 3, 1.5});
}

TEST(LearningRateTest, CosineEndsAtItsFloor) {
  ExpectTable({kCosine, 2.0, 0.5, 0, 2}, {2, 1.5});
  const LearningRateSchedule late = {kCosine, 2.0, 0.5, 0, 1'000'000};
  EXPECT_THAT(LearningRate(late, 999'999), DoubleNear(1.0, 1e-11));
}

TEST(LearningRateTest, OneStepAndNothingButWarmup) {
  for (LearningRateShape shape : {kConstant, kLinear, kCosine}) {
    ExpectTable({shape, 2.0, 0, 0, 1}, {2});
    ExpectTable({shape, 2.0, 0, 4, 2}, {0.5, 1});
    ExpectTable({shape, 2.0, 0, 2, 2}, {1, 2});
  }
}

TEST(LearningRateTest, TheLastStepOfALinearOneIsNotZero) {
  EXPECT_EQ(LearningRate({kLinear, 1.0, 0, 10, 110}, 109), 0.01);
}

}  // namespace
}  // namespace megatrain
