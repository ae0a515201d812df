// Chooses where a step's memory lies and in which order it runs: what of a model a device holds,
// which activations it keeps, where its units are updated and how a step is cut. Pure functions,
// without LibTorch and CUDA.

#ifndef RUNTIME_PLANNER_PLACEMENT_H_
#define RUNTIME_PLANNER_PLACEMENT_H_

#include <cstdint>
#include <optional>

#include "runtime/config/model_config.h"
#include "runtime/config/model_layout.h"
#include "runtime/pipeline/pipeline_options.h"
#include "runtime/planner/machine_speeds.h"
#include "runtime/planner/placement_choice.h"
#include "runtime/planner/placement_request.h"
#include "runtime/planner/step_simulation.h"

namespace megatrain {

// A placement that fits, and the step it makes.
struct Placement {
  PipelineOptions pipeline;
  int64_t micro_batch_rows = 0;
  SimulatedStep predicted;
};

// Of the placements that fit, the one whose step is predicted to be the shortest; among nearly
// equal ones that with the larger micro-batches. Absent when none fits. When the device has no room
// for the state of all units, the last layers' are left to the host: their weights are needed last,
// so that the host updates them while the device is busy with the first. When the host has no room
// for all gradients, some wait on the device.
std::optional<Placement> ChoosePlacement(const ModelConfig& config, const ModelLayout& layout,
                                         const PlacementRequest& request,
                                         const BackendMemory& memory, const MachineSpeeds& speeds);

// The one that takes the least memory, for a verdict that says what is lacking.
Placement SmallestPlacement(const ModelConfig& config, const ModelLayout& layout,
                            const PlacementRequest& request, const BackendMemory& memory,
                            const MachineSpeeds& speeds);

}  // namespace megatrain

#endif  // RUNTIME_PLANNER_PLACEMENT_H_
