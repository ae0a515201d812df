#include "runtime/pipeline/device_memory.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/round_up.h"
#include "runtime/device/device_math.h"
#include "runtime/pipeline/results_layout.h"

namespace megatrain {
namespace {

constexpr int64_t kFloatBytes = 4;
constexpr int64_t kHalfBytes = 2;  // of either half of a master weight

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

// By slot, the most elements that a unit has whose weights go there; none may.
std::vector<int64_t> WeightSlotElements(const ModelLayout& layout, const ScheduleShape& shape,
                                        const UnitSlots& slots) {
  std::vector<int64_t> elements(shape.used_weight_slot_count(), 0);
  int64_t streamed = 0;
  for (int unit = 0; unit < shape.unit_count(); ++unit) {
    const int own = slots.OwnWeightSlot(unit);
    int64_t& largest = own < 0 ? streamed : elements[own];
    largest = std::max(largest, layout.units[unit].element_count);
  }
  const int shared = std::min(shape.weight_slot_count, shape.streamed_layer_count());
  std::fill_n(elements.begin() + kFirstLayerSlot, shared, streamed);
  return elements;
}

std::vector<int64_t> GradientSlotElements(const ModelLayout& layout, const ScheduleShape& shape,
                                          const UnitSlots& slots) {
  std::vector<int64_t> elements(shape.used_gradient_slot_count(), 0);
  for (int unit = 0; unit < shape.unit_count(); ++unit) {
    int64_t& slot = elements[slots.GradientSlot(unit)];
    slot = std::max(slot, layout.units[unit].element_count);
  }
  return elements;
}

DeviceState TakeState(const PipelineOptions& options, int unit, const DeviceRegion& weights,
                      int64_t elements, DeviceBytes& bytes, Cursor& cursor) {
  DeviceState state;
  state.weights = weights;
  state.hi = weights;
  if (options.compute_dtype == ComputeDtype::kFloat32) {
    state.hi = cursor.Take(elements * kHalfBytes, bytes.states);
  }
  if (!PassesOverBus(options.update_of(unit))) {
    state.lo = cursor.Take(elements * kHalfBytes, bytes.states);
    state.moment1 = cursor.Take(elements * kFloatBytes, bytes.states);
    state.moment2 = cursor.Take(elements * kFloatBytes, bytes.states);
  }
  return state;
}

int64_t ChunkCount(int64_t elements, const PipelineOptions& options) {
  return (elements + options.state_chunk_elements - 1) / options.state_chunk_elements;
}

std::vector<StagingSlot> TakeStagingSlots(const ModelLayout& layout, const PipelineOptions& options,
                                          DeviceBytes& bytes, Cursor& cursor) {
  int64_t elements = 0;  // of the largest chunk
  bool brings_weights = false;
  bool brings_gradients = false;
  for (int unit = 0; unit <= layout.head_unit(); ++unit) {
    if (PassesOverBus(options.update_of(unit))) {
      elements = std::max(elements, layout.units[unit].element_count);
      brings_weights = brings_weights || !options.on_device(unit);
      brings_gradients = brings_gradients || options.gradient_crosses(unit);
    }
  }
  if (elements == 0) {
    return {};
  }
  elements = std::min(elements, options.state_chunk_elements);
  const int64_t gradient_bytes = SizeBytes(options.compute_dtype);
  std::vector<StagingSlot> slots(options.staging_slot_count);
  for (StagingSlot& slot : slots) {
    slot.lo = cursor.Take(elements * kHalfBytes, bytes.states);
    slot.moment1 = cursor.Take(elements * kFloatBytes, bytes.states);
    slot.moment2 = cursor.Take(elements * kFloatBytes, bytes.states);
    slot.hi = cursor.Take(brings_weights ? elements * kHalfBytes : 0, bytes.states);
    slot.gradient = cursor.Take(brings_gradients ? elements * gradient_bytes : 0, bytes.states);
  }
  return slots;
}

int64_t ActivationTokens(const PipelineOptions& options) {
  if (options.order == MicroBatchOrder::kMicroBatchMajor) {
    return RoundUp(options.max_micro_batch_tokens, kActivationAlignmentTokens);
  }
  const int64_t padding = (kActivationAlignmentTokens - 1) * options.max_micro_batches;
  return RoundUp(options.max_step_tokens + padding, kActivationAlignmentTokens);
}

// Boundaries, what layers keep, and hidden gradients: of all micro-batches that live at once.
void MapActivations(const ScheduleShape& shape, const PipelineOptions& options, int64_t token_bytes,
                    DeviceMemoryMap& map, Cursor& cursor) {
  const int64_t boundary_bytes = map.activation_tokens * token_bytes;
  const int64_t kept_tokens =
      options.CountKept(KeptPlace::kDevice, options.max_micro_batches) * map.micro_batch_tokens;
  const int last = shape.layer_count;
  map.boundaries.reserve(last + 1);
  map.kept.reserve(last + 1);
  for (int unit = 0; unit <= last; ++unit) {
    const bool rolls = shape.rolls(unit) && unit < last;
    const int64_t tokens = options.kept_by_place(unit) ? kept_tokens : map.activation_tokens;
    const int64_t kept_bytes = unit == 0 ? 0 : tokens * options.kept_bytes_of(unit);
    map.boundaries.push_back(cursor.Take(rolls ? 0 : boundary_bytes, map.bytes.activations));
    map.kept.push_back(cursor.Take(kept_bytes, map.bytes.activations));
  }
  map.hidden_gradients = cursor.Take(boundary_bytes, map.bytes.activations);
  for (int unit = 0; unit < last; ++unit) {
    if (shape.rolls(unit)) {
      map.boundaries[unit] =
          shape.rolling_index(unit) == 0 ? map.boundaries[last] : map.hidden_gradients;
    }
  }
}

// The ring of slots, and the host's parts.
void MapStash(const ScheduleShape& shape, const PipelineOptions& options, int64_t token_bytes,
              DeviceMemoryMap& map, Cursor& cursor) {
  std::vector<PinnedArena::Part> host_parts(HostBoundaryPart(shape.head_unit()));
  StashSizes& sizes = map.stash_sizes;
  const int kept_count = options.CountKept(KeptPlace::kHost, options.max_micro_batches);
  bool stashes = false;
  for (int unit = 1; unit <= shape.layer_count; ++unit) {
    if (shape.stashes_boundary(unit)) {
      stashes = true;
      sizes.boundary_bytes = RoundUp(map.micro_batch_tokens * token_bytes, kDeviceAlignmentBytes);
      host_parts[HostBoundaryPart(options.stash_unit(unit))].piece_bytes =
          map.activation_tokens * token_bytes;
    }
    if (kept_count > 0 && options.kept_by_place(unit)) {
      stashes = true;
      const int64_t kept_bytes = map.micro_batch_tokens * options.kept_bytes_of(unit);
      sizes.kept_bytes = std::max(sizes.kept_bytes, kept_bytes);
      PinnedArena::Part& part = host_parts[HostKeptPart(options.stash_unit(unit))];
      part = {.piece_bytes = std::max(part.piece_bytes, kept_bytes), .piece_count = kept_count};
    }
  }
  if (!stashes) {
    return;
  }
  map.host_parts = std::move(host_parts);
  for (int slot = 0; slot < shape.stash_slot_count; ++slot) {
    map.stash_slots.push_back(
        cursor.Take(sizes.boundary_bytes + sizes.kept_bytes, map.bytes.activations));
  }
}

std::vector<bool> KeptOnHost(const ModelLayout& layout, const PipelineOptions& options) {
  std::vector<bool> on_host;
  for (int unit = 0; unit <= layout.head_unit(); ++unit) {
    on_host.push_back(options.kept_by_place(unit));
  }
  return on_host;
}

}  // namespace

int64_t DeviceStateBytes(const DeviceMemoryMap& map) {
  int64_t size_bytes = 0;
  for (const DeviceState& state : map.states) {
    size_bytes += state.hi.size_bytes + state.lo.size_bytes + state.moment1.size_bytes +
                  state.moment2.size_bytes;
  }
  return size_bytes;
}

ScheduleShape MakeScheduleShape(const ModelLayout& layout, const PipelineOptions& options,
                                int micro_batch_count, bool forward_only) {
  std::vector<int> state_chunks;
  for (const UnitLayout& unit : layout.units) {
    state_chunks.push_back(static_cast<int>(ChunkCount(unit.element_count, options)));
  }
  return {.layer_count = layout.layer_count(),
          .tied = layout.tied,
          .micro_batch_count = micro_batch_count,
          .order = options.order,
          .weight_slot_count =
              options.resident_weights ? layout.layer_count() : options.weight_slot_count,
          .gradient_slot_count = options.gradient_slot_count,
          .forward_only = forward_only,
          .updates = options.updates,
          .state_chunks = std::move(state_chunks),
          .staging_slot_count = options.staging_slot_count,
          .boundary_on_host = options.boundary_on_host,
          .kept_on_host = KeptOnHost(layout, options),
          .kept_places = options.kept_places,
          .stash_slot_count = options.stash_slot_count};
}

DeviceMemoryMap MapDeviceMemory(const ModelLayout& layout, const PipelineOptions& options) {
  const ScheduleShape shape =
      MakeScheduleShape(layout, options, options.max_micro_batches, /*forward_only=*/false);
  const int64_t compute_bytes = SizeBytes(options.compute_dtype);
  const TensorLayout* table = layout.units.front().Find(TensorRole::kTokenTable);
  MT_CHECK(table != nullptr);

  DeviceMemoryMap map;
  Cursor cursor;
  const UnitSlots slots(shape);
  map.weight_slots.reserve(shape.used_weight_slot_count());
  map.gradient_slots.reserve(shape.used_gradient_slot_count());
  map.states.reserve(shape.unit_count());
  for (const int64_t elements : WeightSlotElements(layout, shape, slots)) {
    map.weight_slots.push_back(cursor.Take(elements * compute_bytes, map.bytes.weights));
  }
  for (const int64_t elements : GradientSlotElements(layout, shape, slots)) {
    map.gradient_slots.push_back(cursor.Take(elements * kFloatBytes, map.bytes.gradients));
  }
  if (layout.tied) {
    map.tied_matrix_gradient = cursor.Take(table->element_count * kFloatBytes, map.bytes.gradients);
  }
  for (int unit = 0; unit < shape.unit_count(); ++unit) {
    DeviceState& state = map.states.emplace_back();
    if (shape.on_device(unit)) {
      state = TakeState(options, unit, map.weight_slots[slots.OwnWeightSlot(unit)],
                        layout.units[unit].element_count, map.bytes, cursor);
    } else if (shape.keeps_gradient(unit)) {
      state.gradient =
          cursor.Take(layout.units[unit].element_count * compute_bytes, map.bytes.kept_gradients);
    }
  }
  map.staging_slots = TakeStagingSlots(layout, options, map.bytes, cursor);
  map.micro_batch_tokens = RoundUp(options.max_micro_batch_tokens, kActivationAlignmentTokens);
  map.activation_tokens = ActivationTokens(options);
  const int64_t token_bytes = table->shape[1] * compute_bytes;
  MapActivations(shape, options, token_bytes, map, cursor);
  MapStash(shape, options, token_bytes, map, cursor);
  for (int slot = 0; slot < shape.activation_slot_count(); ++slot) {
    map.batch_tables.push_back(cursor.Take(options.batch_table_bytes, map.bytes.activations));
  }
  map.results = cursor.Take(ResultsLayout(layout, options.max_micro_batches).size_bytes(),
                            map.bytes.workspace);
  if (options.stages_loads && options.compute_dtype == ComputeDtype::kFloat32) {
    map.load_staging = cursor.Take(layout.LargestUnitElements() * kFloatBytes, map.bytes.workspace);
  }
  map.sum_scratch = cursor.Take(DeviceMath::kSumScratchBytes, map.bytes.workspace);
  map.workspace = cursor.Take(options.workspace_bytes, map.bytes.workspace);
  return map;
}

}  // namespace megatrain
