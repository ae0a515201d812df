// Decides, before anything is allocated, whether a job fits a machine (acceptance rules R1, R2).
// Pure functions, without LibTorch: the daemon and the engine both call them.

#ifndef RUNTIME_PLANNER_PLANNER_H_
#define RUNTIME_PLANNER_PLANNER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/model_config.h"
#include "runtime/config/model_layout.h"
#include "runtime/kernels/attention_shape.h"
#include "runtime/model/cuda_buffers.h"
#include "runtime/model/layer_template.h"
#include "runtime/pipeline/pipeline_options.h"
#include "runtime/planner/machine.h"
#include "runtime/planner/operation_costs.h"
#include "runtime/planner/step_simulation.h"
#include "runtime/schedule/schedule.h"

namespace megatrain {

// What of a job decides its memory. Counts are positive but where it says otherwise.
struct JobShape {
  int64_t batch_rows = 8;
  int64_t micro_batch_rows = 0;  // 0: all rows of the step; on a GPU the planner's choice
  int64_t max_sequence_length = 1024;
  int64_t longest_row_tokens = 0;    // of the prepared data; 0: not known yet
  int64_t row_count = 0;             // of the prepared data; 0: not known yet
  int64_t validation_row_count = 0;  // of the data that it is evaluated on; 0: none, or not known
  bool packing = false;
  ComputeDtype compute_dtype = ComputeDtype::kFloat32;
  AttentionMode attention = AttentionMode::kFast;
  std::optional<MicroBatchOrder> order;  // absent: the planner's choice
  int weight_slot_count = 0;             // for decoder layers; 0: the planner's choice
  bool resident_weights = false;         // else the planner's choice on a GPU, and none on a CPU
  PinMode pin = PinMode::kAuto;
  int64_t host_limit_bytes = 0;    // below what the machine has; 0: no limit
  int64_t device_limit_bytes = 0;  // the same for the device
};

struct MemoryItem {
  std::string kind;
  int64_t size_bytes;
};

// Sizes are upper bounds. Host kinds: weights_hi, weights_lo, adam_m, adam_v, gradients, libraries,
// io_buffers, data, step_tables, stashed_activations, pinned_slabs on a GPU and where copies are
// to go through them, and on the CPU backend device_arena, which is the sum of `device`. Device
// kinds: weights, gradients, states, activations, workspace, and kept_gradients where some wait
// there for the norm.
struct Plan {
  bool fits = false;
  bool trainable = false;  // false: can be planned but not trained yet
  std::string verdict;  // in words: the binding limit and what would fit, why it is not trainable
  std::vector<MemoryItem> host;
  std::vector<MemoryItem> device;
  int64_t host_bytes = 0;
  int64_t host_available_bytes = 0;
  int64_t device_bytes = 0;
  int64_t device_available_bytes = 0;
  int64_t parameter_count = 0;
  int64_t active_parameter_count = 0;

  // What the engine sets its pipeline up with, the rows that it cuts a step into, and what they
  // may be.
  PipelineOptions pipeline;
  int64_t micro_batch_rows = 0;
  MicroBatchLimits limits = {};

  int64_t device_state_bytes = 0;  // that a GPU alone has up to date: copied back for a checkpoint

  StepRows step;
  SimulatedStep predicted;  // on a GPU, of what fits; 0 seconds: not known
};

// Counts of `shape` that are out of range are not fitting, with a verdict that says so.
Plan PlanJob(const ModelConfig& config, const JobShape& shape, const MachineProfile& machine);

// The layout that a plan counts bytes by; of a model that cannot be trained yet, with one tensor a
// unit.
ModelLayout PlanningLayout(const ModelConfig& config);

// Bytes in words for people: "1.5 GiB".
std::string FormatBytes(int64_t size_bytes);

// `layer_major` and `micro_batch_major`.
std::string_view OrderName(MicroBatchOrder order);

}  // namespace megatrain

#endif  // RUNTIME_PLANNER_PLANNER_H_
