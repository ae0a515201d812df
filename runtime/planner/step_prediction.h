// How long a training step takes under a placement, and why: its schedule in simulated time. Pure;
// what placements are compared by.

#ifndef RUNTIME_PLANNER_STEP_PREDICTION_H_
#define RUNTIME_PLANNER_STEP_PREDICTION_H_

#include <array>
#include <optional>

#include "runtime/config/model_config.h"
#include "runtime/config/model_layout.h"
#include "runtime/pipeline/pipeline_options.h"
#include "runtime/planner/machine_speeds.h"
#include "runtime/planner/operation_costs.h"
#include "runtime/planner/step_simulation.h"

namespace megatrain {

// Refers to its arguments.
struct StepPredictor {
  const ModelConfig& config;
  const ModelLayout& layout;
  const StepRows& step;
  const MachineSpeeds& speeds;

  // From a step's start to the next one's, in steady state. `options` are complete.
  SimulatedStep Predict(const PipelineOptions& options) const;

  // The same for a search: absent when it is not shorter than the limit, which is cheaper to find
  // out.
  std::optional<SimulatedStep> PredictBelow(PipelineOptions options, double limit_seconds) const;

  // The compute stream's work alone: no step under these options is shorter.
  double ComputeSeconds(const PipelineOptions& options) const;
};

// By Resource: how much shorter than `step`, which is predicted of the same, a step would be, were
// that twice as fast. The bus is so both ways.
std::array<double, kResourceCount> SavedByDoubling(const StepPredictor& predictor,
                                                   const PipelineOptions& options,
                                                   const SimulatedStep& step);

// What sets the length of a step: the resource whose doubling saves most. Of two that one thing
// makes faster, the ways of the bus or the works of the device's memory, the one that is busier.
Resource BindingResource(const SimulatedStep& step,
                         const std::array<double, kResourceCount>& saved_seconds);

// The same machine with that resource `factor` times as fast.
MachineSpeeds Faster(const MachineSpeeds& speeds, Resource resource, double factor);

}  // namespace megatrain

#endif  // RUNTIME_PLANNER_STEP_PREDICTION_H_
