#ifndef RUNTIME_PIPELINE_PIPELINE_OPTIONS_H_
#define RUNTIME_PIPELINE_PIPELINE_OPTIONS_H_

#include <cstdint>

#include "runtime/model/layer_template.h"
#include "runtime/schedule/schedule.h"

namespace megatrain {

// A placement: decides memory and speed, never a bit of the result.
struct PipelineOptions {
  MicroBatchOrder order = MicroBatchOrder::kLayerMajor;
  int weight_slot_count = 2;      // shared by the layers: 2 loads one while another computes
  int gradient_slot_count = 2;    // shared by the layers in layer-major order
  bool resident_weights = false;  // a slot for every layer; each crosses the bus once a step
  ComputeDtype compute_dtype = ComputeDtype::kFloat32;
  int64_t max_micro_batch_tokens = 0;
  int64_t max_step_tokens = 0;  // of all micro-batches of a step
  int max_micro_batches = 0;    // of a step
  int64_t workspace_bytes = 0;  // as the model's templates need it
};

}  // namespace megatrain

#endif  // RUNTIME_PIPELINE_PIPELINE_OPTIONS_H_
