#ifndef RUNTIME_PLANNER_PLACEMENT_REQUEST_H_
#define RUNTIME_PLANNER_PLACEMENT_REQUEST_H_

#include <cstdint>
#include <optional>

#include "runtime/model/layer_template.h"
#include "runtime/pipeline/pipeline_options.h"
#include "runtime/planner/operation_costs.h"
#include "runtime/schedule/schedule.h"

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

}  // namespace megatrain

#endif  // RUNTIME_PLANNER_PLACEMENT_REQUEST_H_
