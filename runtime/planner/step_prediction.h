// How long a training step takes under a placement: pure arithmetic over a machine's speeds, to
// compare placements by. A step on an idle machine comes within some percent of it.

#ifndef RUNTIME_PLANNER_STEP_PREDICTION_H_
#define RUNTIME_PLANNER_STEP_PREDICTION_H_

#include <cstdint>

#include "runtime/config/model_config.h"
#include "runtime/config/model_layout.h"
#include "runtime/pipeline/pipeline_options.h"

namespace megatrain {

// Of one GPU and its host; the defaults are those of an H200 with 16 cores.
struct MachineSpeeds {
  double matmul_flops = 700e12;     // a second, bf16, of large products
  double attention_flops = 330e12;  // forward and backward together
  double device_bytes = 3.7e12;     // a second that element-wise kernels read and write
  double bus_bytes = 50e9;          // a second and direction
  double host_updates = 3.4e9;      // parameters a second while copies run
};

// A step of `rows` documents of `row_tokens` tokens.
struct StepRows {
  int64_t rows = 0;
  int64_t row_tokens = 0;
};

// Seconds from a step's start to the next one's, in steady state. `options` are complete.
double PredictStepSeconds(const ModelConfig& config, const ModelLayout& layout,
                          const StepRows& step, const PipelineOptions& options,
                          const MachineSpeeds& speeds);

}  // namespace megatrain

#endif  // RUNTIME_PLANNER_STEP_PREDICTION_H_
