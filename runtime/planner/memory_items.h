#ifndef RUNTIME_PLANNER_MEMORY_ITEMS_H_
#define RUNTIME_PLANNER_MEMORY_ITEMS_H_

#include <cstdint>
#include <vector>

#include "runtime/config/model_layout.h"
#include "runtime/model/layer_template.h"
#include "runtime/planner/planner.h"

namespace megatrain {

// Buffers of import and export: pieces of tensors on their way from and to files.
inline constexpr int64_t kIoBufferBytes = int64_t{16} << 20;

// What of a pipeline decides its device memory.
struct DeviceShape {
  MicroBatchOrder order = MicroBatchOrder::kLayerMajor;
  int weight_slot_count = 0;
  int gradient_slot_count = 0;
  ComputeDtype compute_dtype = ComputeDtype::kFloat32;
  int64_t max_micro_batch_tokens = 0;
  int64_t max_micro_batches = 0;
  int64_t workspace_bytes = 0;
};

// By kind: the planes of the host store, and the device arena's parts.
std::vector<MemoryItem> HostStoreItems(const ModelLayout& layout, ComputeDtype compute_dtype);
std::vector<MemoryItem> DeviceItems(const ModelLayout& layout, int64_t hidden_size,
                                    const DeviceShape& shape);

}  // namespace megatrain

#endif  // RUNTIME_PLANNER_MEMORY_ITEMS_H_
