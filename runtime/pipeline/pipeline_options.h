#ifndef RUNTIME_PIPELINE_PIPELINE_OPTIONS_H_
#define RUNTIME_PIPELINE_PIPELINE_OPTIONS_H_

#include <array>
#include <cstdint>
#include <vector>

#include "runtime/model/layer_template.h"
#include "runtime/schedule/schedule.h"

namespace megatrain {

// A placement: decides memory and speed, never a bit of the result.
struct PipelineOptions {
  MicroBatchOrder order = MicroBatchOrder::kLayerMajor;
  int weight_slot_count = 2;          // shared by the layers: 2 loads one while another computes
  int gradient_slot_count = 2;        // shared by the layers in layer-major order
  bool resident_weights = false;      // a slot for every layer; each crosses the bus once a step
  std::vector<bool> state_on_device;  // by unit, see ScheduleShape; empty: none
  std::vector<KeepLevel> keep;        // by unit, of which layers count; empty: nothing is kept
  ComputeDtype compute_dtype = ComputeDtype::kFloat32;
  int64_t max_micro_batch_tokens = 0;
  int64_t max_step_tokens = 0;  // of all micro-batches of a step
  int max_micro_batches = 0;    // of a step

  // What the model's templates and the device's arithmetic need.
  int64_t workspace_bytes = 0;
  int64_t batch_table_bytes = 0;                               // ModelTemplates::BatchTableBytes
  std::array<int64_t, kKeepLevelCount> kept_token_bytes = {};  // by KeepLevel, KeptTokenBytes
  bool stages_loads = false;                                   // DeviceMath::stages_loads

  // Fills what a slot held when it is freed, so that a late reader shows: for the CPU, where that
  // costs little.
  bool poisons_freed_slots = true;

  bool on_device(int unit) const { return !state_on_device.empty() && state_on_device[unit]; }
  KeepLevel keep_of(int unit) const { return keep.empty() ? KeepLevel::kNothing : keep[unit]; }
};

}  // namespace megatrain

#endif  // RUNTIME_PIPELINE_PIPELINE_OPTIONS_H_
