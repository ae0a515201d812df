#ifndef RUNTIME_PIPELINE_STEP_RESULT_H_
#define RUNTIME_PIPELINE_STEP_RESULT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/model/layer_template.h"
#include "runtime/optimizer/adamw.h"

namespace megatrain {

// What one optimizer step trains on, and how.
struct StepInput {
  std::vector<MicroBatch> micro_batches;  // what they view must live until the step's result
  int64_t loss_token_count = 0;           // of all micro-batches: loss and gradient are per token
  AdamWStep optimizer;             // `step` and `gradient_scale` are the pipeline's, not read here
  double max_gradient_norm = 0.0;  // 0: no clipping
};

// Where an infinity or NaN came from, as far as is known; -1 and "" where it is not.
struct NonFinite {
  int unit = -1;         // the first, in the order of computation, that made one
  std::string tensor;    // whose gradient is not finite; "" when the loss is not
  int micro_batch = -1;  // of the step
  int document = -1;     // of the micro-batch
};

// How a step ended. When it is not finite, no unit was updated.
struct StepResult {
  double loss = 0.0;              // per loss token, before the update
  double gradient_norm = 0.0;     // of all gradients, before clipping
  double clip_coefficient = 1.0;  // what the gradients were multiplied with
  bool finite = true;
  NonFinite non_finite;  // when not finite
};

}  // namespace megatrain

#endif  // RUNTIME_PIPELINE_STEP_RESULT_H_
