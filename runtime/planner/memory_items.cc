#include "runtime/planner/memory_items.h"

#include <algorithm>

#include "runtime/hoststore/host_store.h"

namespace megatrain {

std::vector<MemoryItem> HostStoreItems(const ModelLayout& layout, ComputeDtype compute_dtype) {
  const HostStore::Options options{.gradient_bytes = static_cast<int>(SizeBytes(compute_dtype))};
  std::vector<MemoryItem> items;
  for (const auto& [kind, size_bytes] : HostStore::Bytes(layout, options)) {
    items.push_back({kind, size_bytes});
  }
  return items;
}

std::vector<MemoryItem> DeviceItems(const ModelLayout& layout, int64_t hidden_size,
                                    const DeviceShape& shape) {
  const ScheduleShape schedule{.layer_count = layout.layer_count(),
                               .tied = layout.tied,
                               .micro_batch_count = static_cast<int>(shape.max_micro_batches),
                               .order = shape.order,
                               .weight_slot_count = shape.weight_slot_count,
                               .gradient_slot_count = shape.gradient_slot_count};
  int64_t layer_elements = 0;
  for (int layer = 1; layer <= layout.layer_count(); ++layer) {
    layer_elements = std::max(layer_elements, layout.units[layer].element_count);
  }
  const int64_t ends = layout.units.front().element_count + layout.units.back().element_count;
  const int64_t weights =
      ends + layer_elements * (schedule.used_weight_slot_count() - kFirstLayerSlot);
  const int64_t tied_table = layout.tied ? layout.units.front().element_count : 0;
  const int64_t gradients =
      ends + tied_table + layer_elements * (schedule.used_gradient_slot_count() - kFirstLayerSlot);
  const int64_t width = SizeBytes(shape.compute_dtype);
  const int64_t hidden = shape.max_micro_batch_tokens * hidden_size * width;
  return {{"weight_slots", weights * width},
          {"gradient_slots", gradients * 4},
          {"activations", hidden * (layout.layer_count() + 1) * schedule.activation_slot_count()},
          {"hidden_gradients", hidden * schedule.activation_slot_count()},
          {"workspace", shape.workspace_bytes}};
}

}  // namespace megatrain
