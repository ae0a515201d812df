#ifndef RUNTIME_PLANNER_BACKEND_MEMORY_H_
#define RUNTIME_PLANNER_BACKEND_MEMORY_H_

#include <cstdint>

#include "runtime/config/model_config.h"
#include "runtime/kernels/attention_shape.h"
#include "runtime/model/cuda_buffers.h"
#include "runtime/model/layer_template.h"
#include "runtime/planner/machine.h"
#include "runtime/planner/placement_choice.h"

namespace megatrain {

// How a backend is asked to compute.
struct ComputeSetting {
  Backend backend = Backend::kCpu;
  ComputeDtype dtype = ComputeDtype::kFloat32;
  AttentionMode attention = AttentionMode::kFast;
};

// What the rows of a micro-batch may be.
struct RowLimits {
  int64_t document_tokens = 0;  // of the longest document
  int64_t row_tokens = 0;       // of a row
  int64_t row_documents = 1;    // in a row
};

// What the backend's templates and arithmetic take of device memory. Pure: no GPU is asked.
BackendMemory MakeBackendMemory(const ModelConfig& config, const ComputeSetting& setting,
                                const RowLimits& limits);

// What a job takes beside its pipeline's arena and the host store.
struct JobMemory {
  int64_t device_bytes = 0;  // the rotary table
  int64_t host_bytes = 0;    // pinned: tables of micro-batches on their way
};

// Of micro-batches within the limits. Pure, as above.
JobMemory MakeJobMemory(const ModelConfig& config, const ComputeSetting& setting,
                        const MicroBatchLimits& limits);

}  // namespace megatrain

#endif  // RUNTIME_PLANNER_BACKEND_MEMORY_H_
