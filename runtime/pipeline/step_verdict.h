#ifndef RUNTIME_PIPELINE_STEP_VERDICT_H_
#define RUNTIME_PIPELINE_STEP_VERDICT_H_

#include <cstddef>

#include "runtime/config/model_layout.h"
#include "runtime/pipeline/results_layout.h"
#include "runtime/pipeline/step_result.h"

namespace megatrain {

// Loss, global norm and clip coefficient of a step, or where it went wrong, from the results that
// lie at `results` in host memory. Clips as torch.nn.utils.clip_grad_norm_: coefficient =
// min(1, max_norm / (norm + 1e-6)). Sums are taken in fp64, in the order of units and tensors.
StepResult JudgeStep(const ModelLayout& layout, const StepInput& input,
                     const ResultsLayout& results_layout, std::byte* results);

}  // namespace megatrain

#endif  // RUNTIME_PIPELINE_STEP_VERDICT_H_
