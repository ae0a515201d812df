#ifndef RUNTIME_OPTIMIZER_ADAMW_STEP_H_
#define RUNTIME_OPTIMIZER_ADAMW_STEP_H_

#include <cmath>
#include <cstdint>

namespace megatrain {

// What one optimizer step does to every element. Betas in [0, 1), epsilon > 0.
struct AdamWStep {
  double learning_rate = 1e-5;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
  int64_t step = 1;             // how many updates the moments will have seen after this one
  double gradient_scale = 1.0;  // multiplies the gradient first: the clip coefficient
};

// How an update on the device finds a gradient. The last two give the same bits.
enum class GradientForm {
  kFloat32,
  kFloat32ToRound,  // rounded to the nearest bf16 first, as one that crosses to the host is
  kBfloat16,        // it was rounded
};

// AdamWStep in the form in which every implementation of the update uses it: all that can be known
// before the elements are seen, taken in fp64 and rounded once.
struct AdamWCoefficients {
  explicit AdamWCoefficients(const AdamWStep& step)
      : gradient_scale(static_cast<float>(step.gradient_scale)),
        decay(static_cast<float>(1.0 - step.learning_rate * step.weight_decay)),
        moment1_weight(static_cast<float>(1.0 - step.beta1)),
        beta2(static_cast<float>(step.beta2)),
        moment2_weight(static_cast<float>(1.0 - step.beta2)),
        correction2(static_cast<float>(
            std::sqrt(1.0 - std::pow(step.beta2, static_cast<double>(step.step))))),
        epsilon(static_cast<float>(step.epsilon)),
        negative_step_size(static_cast<float>(
            -step.learning_rate / (1.0 - std::pow(step.beta1, static_cast<double>(step.step))))) {}

  float gradient_scale;
  float decay;
  float moment1_weight;
  float beta2;
  float moment2_weight;
  float correction2;
  float epsilon;
  float negative_step_size;
};

}  // namespace megatrain

#endif  // RUNTIME_OPTIMIZER_ADAMW_STEP_H_
