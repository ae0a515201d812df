#ifndef RUNTIME_OPTIMIZER_LEARNING_RATE_H_
#define RUNTIME_OPTIMIZER_LEARNING_RATE_H_

#include <cstdint>

namespace megatrain {

enum class LearningRateShape { kConstant, kLinear, kCosine };

// The learning rate over a job's optimizer steps. 0 <= warmup_steps and 1 <= total_steps.
struct LearningRateSchedule {
  LearningRateShape shape = LearningRateShape::kLinear;
  double peak = 1e-5;
  double floor_ratio = 0.0;  // where a cosine would end, as a part of the peak
  int64_t warmup_steps = 0;
  int64_t total_steps = 1;
};

// The rate of optimizer step `step`, counted from 0 and including skipped ones. With W warm-up
// steps and S in all: peak (step + 1) / W below W, then constant; or linear, peak (S - step) /
// (S - W); or a half cosine from the peak at W to the floor at S. Requires 0 <= step < S.
double LearningRate(const LearningRateSchedule& schedule, int64_t step);

}  // namespace megatrain

#endif  // RUNTIME_OPTIMIZER_LEARNING_RATE_H_
