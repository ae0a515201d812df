#include "runtime/optimizer/learning_rate.h"

#include <cmath>
#include <numbers>

#include "runtime/base/check.h"

namespace megatrain {

double LearningRate(const LearningRateSchedule& schedule, int64_t step) {
  MT_CHECK(0 <= step && step < schedule.total_steps);
  const int64_t warmup = schedule.warmup_steps;
  if (step < warmup) {
    return schedule.peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
  }
  const double length = static_cast<double>(schedule.total_steps - warmup);
  switch (schedule.shape) {
    case LearningRateShape::kConstant:
      return schedule.peak;
    case LearningRateShape::kLinear:
      return schedule.peak * static_cast<double>(schedule.total_steps - step) / length;
    case LearningRateShape::kCosine: {
      const double floor = schedule.peak * schedule.floor_ratio;
      const double angle = std::numbers::pi * static_cast<double>(step - warmup) / length;
      return floor + (schedule.peak - floor) * 0.5 * (1.0 + std::cos(angle));
    }
  }
  return schedule.peak;
}

}  // namespace megatrain
