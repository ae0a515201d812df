// How the pipeline's device memory is laid out: pure arithmetic, which the planner adds up and
// the pipeline allocates.

#ifndef RUNTIME_PIPELINE_DEVICE_MEMORY_H_
#define RUNTIME_PIPELINE_DEVICE_MEMORY_H_

#include <cstdint>
#include <vector>

#include "runtime/config/model_layout.h"
#include "runtime/pipeline/pipeline_options.h"
#include "runtime/schedule/schedule.h"

namespace megatrain {

// Bytes by what they hold.
struct DeviceBytes {
  int64_t weights = 0;
  int64_t gradients = 0;
  int64_t activations = 0;
  int64_t workspace = 0;

  int64_t total() const { return weights + gradients + activations + workspace; }
};

// A part of the arena; starts at a multiple of kDeviceAlignmentBytes.
struct DeviceRegion {
  int64_t offset_bytes = 0;
  int64_t size_bytes = 0;
};

inline constexpr int64_t kDeviceAlignmentBytes = 64;

// A micro-batch's boundaries start at a multiple of so many tokens, hence aligned whatever the
// hidden size is.
inline constexpr int64_t kActivationAlignmentTokens = 32;

// Where everything lies in one arena of bytes.total() bytes.
struct DeviceMemoryMap {
  std::vector<DeviceRegion> weight_slots;    // by weight slot, in compute dtype
  std::vector<DeviceRegion> gradient_slots;  // by gradient slot, fp32 by the unit's layout
  DeviceRegion tied_matrix_gradient;         // of a tied model, fp32 [vocab, d]: the head's part
  std::vector<DeviceRegion> squares;         // by unit, fp64: one a tensor
  std::vector<DeviceRegion> boundaries;      // by unit below the head, [activation_tokens, d]
  DeviceRegion hidden_gradients;             // [activation_tokens, d]
  DeviceRegion workspace;
  int64_t activation_tokens = 0;  // micro-batches whose boundaries live at once, aligned each
  DeviceBytes bytes;
};

// Requires positive limits and counts in `options`.
DeviceMemoryMap MapDeviceMemory(const ModelLayout& layout, const PipelineOptions& options);

// The shape of a step's schedule under these options.
ScheduleShape MakeScheduleShape(const ModelLayout& layout, const PipelineOptions& options,
                                int micro_batch_count, bool forward_only);

}  // namespace megatrain

#endif  // RUNTIME_PIPELINE_DEVICE_MEMORY_H_
