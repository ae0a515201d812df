#include "runtime/pipeline/device_memory.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace megatrain {
namespace {

int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Hands out regions one after another.
class Cursor {
 public:
  DeviceRegion Take(int64_t size_bytes, int64_t& kind_bytes) {
    const DeviceRegion region = {end_bytes_, RoundUp(size_bytes, kDeviceAlignmentBytes)};
    end_bytes_ += region.size_bytes;
    kind_bytes += region.size_bytes;
    return region;
  }

 private:
  int64_t end_bytes_ = 0;
};

int64_t LargestLayerElements(const ModelLayout& layout) {
  int64_t largest = 0;
  for (int unit = 1; unit < layout.head_unit(); ++unit) {
    largest = std::max(largest, layout.units[unit].element_count);
  }
  return largest;
}

int64_t SlotElements(const ModelLayout& layout, int slot) {
  if (slot == kEmbeddingSlot) {
    return layout.units.front().element_count;
  }
  if (slot == kHeadSlot) {
    return layout.units.back().element_count;
  }
  return LargestLayerElements(layout);
}

int64_t ActivationTokens(const PipelineOptions& options) {
  if (options.order == MicroBatchOrder::kMicroBatchMajor) {
    return RoundUp(options.max_micro_batch_tokens, kActivationAlignmentTokens);
  }
  const int64_t padding = (kActivationAlignmentTokens - 1) * options.max_micro_batches;
  return RoundUp(options.max_step_tokens + padding, kActivationAlignmentTokens);
}

}  // namespace

ScheduleShape MakeScheduleShape(const ModelLayout& layout, const PipelineOptions& options,
                                int micro_batch_count, bool forward_only) {
  return {.layer_count = layout.layer_count(),
          .tied = layout.tied,
          .micro_batch_count = micro_batch_count,
          .order = options.order,
          .weight_slot_count =
              options.resident_weights ? layout.layer_count() : options.weight_slot_count,
          .gradient_slot_count = options.gradient_slot_count,
          .forward_only = forward_only};
}

DeviceMemoryMap MapDeviceMemory(const ModelLayout& layout, const PipelineOptions& options) {
  const ScheduleShape shape =
      MakeScheduleShape(layout, options, options.max_micro_batches, /*forward_only=*/false);
  const int64_t compute_bytes = SizeBytes(options.compute_dtype);
  const TensorLayout* table = layout.units.front().Find(TensorRole::kTokenTable);
  MT_CHECK(table != nullptr);

  DeviceMemoryMap map;
  Cursor cursor;
  for (int slot = 0; slot < shape.used_weight_slot_count(); ++slot) {
    map.weight_slots.push_back(
        cursor.Take(SlotElements(layout, slot) * compute_bytes, map.bytes.weights));
  }
  for (int slot = 0; slot < shape.used_gradient_slot_count(); ++slot) {
    map.gradient_slots.push_back(cursor.Take(
        SlotElements(layout, slot) * static_cast<int64_t>(sizeof(float)), map.bytes.gradients));
  }
  if (layout.tied) {
    map.tied_matrix_gradient = cursor.Take(
        table->element_count * static_cast<int64_t>(sizeof(float)), map.bytes.gradients);
  }
  for (const UnitLayout& unit : layout.units) {
    map.squares.push_back(cursor.Take(static_cast<int64_t>(unit.tensors.size() * sizeof(double)),
                                      map.bytes.gradients));
  }
  map.activation_tokens = ActivationTokens(options);
  const int64_t boundary_bytes = map.activation_tokens * table->shape[1] * compute_bytes;
  for (int unit = 0; unit < layout.head_unit(); ++unit) {
    map.boundaries.push_back(cursor.Take(boundary_bytes, map.bytes.activations));
  }
  map.hidden_gradients = cursor.Take(boundary_bytes, map.bytes.activations);
  map.workspace = cursor.Take(options.workspace_bytes, map.bytes.workspace);
  return map;
}

}  // namespace megatrain
