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
#include "runtime/planner/step_simulation.h"

namespace megatrain {

// Of what ChoosePlacement chooses by itself.
inline constexpr int64_t kMostMicroBatchTokens = 65536;

// What is to be placed, and what is not to be chosen.
struct PlacementRequest {
  StepRows step;
  ComputeDtype compute_dtype = ComputeDtype::kBfloat16;
  int64_t device_bytes = 0;  // that the pipeline may take
  int64_t host_bytes = 0;    // that gradients and activations may take of the host's memory

  // Fixed by the job; absent or 0: chosen.
  int64_t micro_batch_rows = 0;
  std::optional<MicroBatchOrder> order;
  std::optional<KeepLevel> keep_level;  // of all layers
  std::optional<bool> resident_weights;
  std::optional<int> device_state_units;   // embedding, head, then layers from the first on
  std::optional<int> device_weight_units;  // the next ones, whose states alone pass over the bus
  std::optional<int> bus_update_units;     // of all other units
  std::optional<int> kept_gradient_units;  // of these
  std::optional<int> host_boundary_layers;
  std::optional<int> host_kept_micro_batches;
  int weight_slot_count = 0;
  int gradient_slot_count = 0;

  int fold_layers = 0;           // HostStore's, and PipelineOptions' for what layers leave
  PinMode pin = PinMode::kAuto;  // PipelineOptions'
};

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
