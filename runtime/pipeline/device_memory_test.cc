#include "runtime/pipeline/device_memory.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/pipeline/small_training.h"

namespace megatrain {
namespace {

constexpr auto kHost = UpdatePlacement::kHost;
constexpr auto kDevice = UpdatePlacement::kDevice;
constexpr auto kOverBus = UpdatePlacement::kOverBus;
constexpr auto kOverBusKeptGradient = UpdatePlacement::kOverBusKeptGradient;
constexpr auto kOverBusResident = UpdatePlacement::kOverBusResident;

PipelineOptions Options() {
  return {.weight_slot_count = 2,
          .gradient_slot_count = 3,
          .max_micro_batch_tokens = 100,
          .max_step_tokens = 300,
          .max_micro_batches = 4,
          .workspace_bytes = 1000};
}

std::vector<DeviceRegion> AllRegions(const DeviceMemoryMap& map) {
  std::vector<DeviceRegion> regions = {
      map.tied_matrix_gradient, map.hidden_gradients, map.results,
      map.load_staging,         map.sum_scratch,      map.workspace};
  for (const auto* list :
       {&map.weight_slots, &map.gradient_slots, &map.kept, &map.batch_tables, &map.stash_slots}) {
    regions.insert(regions.end(), list->begin(), list->end());
  }
  for (const StagingSlot& slot : map.staging_slots) {
    regions.insert(regions.end(), {slot.lo, slot.moment1, slot.moment2, slot.hi, slot.gradient});
  }
  for (size_t unit = 0; unit < map.boundaries.size(); ++unit) {
    const int64_t offset = map.boundaries[unit].offset_bytes;
    const bool rolls =
        unit + 1 < map.boundaries.size() && (offset == map.hidden_gradients.offset_bytes ||
                                             offset == map.boundaries.back().offset_bytes);
    if (!rolls) {
      regions.push_back(map.boundaries[unit]);
    }
  }
  for (const DeviceState& state : map.states) {
    regions.insert(regions.end(), {state.lo, state.moment1, state.moment2, state.gradient});
    const bool shares_slot = std::any_of(
        map.weight_slots.begin(), map.weight_slots.end(),
        [&state](const DeviceRegion& slot) { return slot.offset_bytes == state.hi.offset_bytes; });
    if (!shares_slot) {
      regions.push_back(state.hi);
    }
  }
  std::erase_if(regions, [](const DeviceRegion& region) { return region.size_bytes == 0; });
  std::sort(regions.begin(), regions.end(), [](const DeviceRegion& a, const DeviceRegion& b) {
    return a.offset_bytes < b.offset_bytes;
  });
  return regions;
}

TEST(DeviceMemoryTest, RegionsFillTheArenaWithoutOverlap) {
  for (const bool tied : {false, true}) {
    for (const auto order : {MicroBatchOrder::kLayerMajor, MicroBatchOrder::kMicroBatchMajor}) {
      for (const auto dtype : {ComputeDtype::kFloat32, ComputeDtype::kBfloat16}) {
        PipelineOptions options = Options();
        options.order = order;
        options.compute_dtype = dtype;
        options.stages_loads = true;
        options.updates = {kDevice, kOverBusKeptGradient, kDevice, kOverBusResident, kOverBus,
                           kHost};
        options.keep = std::vector<KeepLevel>(6, KeepLevel::kProducts);
        options.kept_token_bytes = {0, 10, 20, 30, 40};
        options.batch_table_bytes = 100;
        if (order == MicroBatchOrder::kLayerMajor) {
          options.boundary_on_host = {false, true, false, true, true, false};
          options.kept_on_host = {false, false, true, true, false, false};
        }
        const DeviceMemoryMap map = MapDeviceMemory(SmallLayout(tied), options);
        int64_t end = 0;
        for (const DeviceRegion& region : AllRegions(map)) {
          EXPECT_EQ(region.offset_bytes, end);
          EXPECT_EQ(region.offset_bytes % kDeviceAlignmentBytes, 0);
          end += region.size_bytes;
        }
        EXPECT_EQ(end, map.bytes.total());
      }
    }
  }
}

TEST(DeviceMemoryTest, CountsSlotsByPlacement) {
  const ModelLayout layout = SmallLayout(/*tied=*/false);
  const int64_t embedding = layout.units[0].element_count;
  const int64_t layer = layout.units[1].element_count;
  const int64_t ends = std::max(embedding, layout.units.back().element_count);  // they share

  PipelineOptions options = Options();
  const auto expect_weights = [&](int64_t size_bytes) {
    const int64_t actual = MapDeviceMemory(layout, options).bytes.weights;
    EXPECT_GE(actual, size_bytes);
    EXPECT_LE(actual, size_bytes + 6 * kDeviceAlignmentBytes);
  };
  expect_weights(4 * (ends + 2 * layer));
  options.compute_dtype = ComputeDtype::kBfloat16;
  expect_weights(2 * (ends + 2 * layer));
  options.resident_weights = true;
  expect_weights(2 * (ends + 4 * layer));

  const int64_t three = 4 * (ends + 3 * layer);
  EXPECT_GE(MapDeviceMemory(layout, options).bytes.gradients, three);
  EXPECT_LE(MapDeviceMemory(layout, options).bytes.gradients, three + 5 * kDeviceAlignmentBytes);
  options.order = MicroBatchOrder::kMicroBatchMajor;
  EXPECT_GE(MapDeviceMemory(layout, options).bytes.gradients, three + 4 * layer);
}

TEST(DeviceMemoryTest, AUnitOnTheDeviceHasItsStateThereAndItsOwnSlots) {
  const ModelLayout layout = SmallLayout(/*tied=*/false);
  const int64_t layer = layout.units[1].element_count;
  PipelineOptions options = Options();
  const DeviceBytes streamed = MapDeviceMemory(layout, options).bytes;
  EXPECT_EQ(streamed.states, 0);
  options.updates = {kHost, kHost, kDevice, kHost, kHost, kHost};
  const DeviceMemoryMap map = MapDeviceMemory(layout, options);
  EXPECT_EQ(map.bytes.states, (2 + 2 + 4 + 4) * layer);
  EXPECT_EQ(map.bytes.weights, streamed.weights + 4 * layer);
  EXPECT_EQ(map.bytes.gradients, streamed.gradients + 4 * layer);
  options.compute_dtype = ComputeDtype::kBfloat16;  // the upper half is the weight slot
  EXPECT_EQ(MapDeviceMemory(layout, options).bytes.states, (2 + 4 + 4) * layer);
}

TEST(DeviceMemoryTest, WhatPassesOverTheBusHasARingOfChunks) {
  const ModelLayout layout = SmallLayout(/*tied=*/false);
  const int64_t layer = layout.units[1].element_count;
  PipelineOptions options = Options();
  options.compute_dtype = ComputeDtype::kBfloat16;
  options.state_chunk_elements = 128;
  options.staging_slot_count = 3;
  ASSERT_GT(layer, 128);
  const DeviceBytes streamed = MapDeviceMemory(layout, options).bytes;
  options.updates = {kHost, kOverBus, kHost, kHost, kHost, kHost};
  DeviceBytes bytes = MapDeviceMemory(layout, options).bytes;
  EXPECT_EQ(bytes.states, 3 * 128 * (2 + 4 + 4 + 2 + 2));
  EXPECT_EQ(bytes.total(), streamed.total() + bytes.states);
  EXPECT_EQ(MakeScheduleShape(layout, options, 1, false).state_chunks[1], (layer + 127) / 128);

  options.updates[1] = kOverBusKeptGradient;  // rounded, in memory of its own
  bytes = MapDeviceMemory(layout, options).bytes;
  EXPECT_EQ(bytes.states, 3 * 128 * (2 + 4 + 4 + 2));
  EXPECT_EQ(bytes.kept_gradients, 2 * layer);
  EXPECT_EQ(bytes.total(), streamed.total() + bytes.states + bytes.kept_gradients);

  options.updates[1] = kOverBusResident;  // weights and gradient wait on the device
  bytes = MapDeviceMemory(layout, options).bytes;
  EXPECT_EQ(bytes.states, 3 * 128 * (2 + 4 + 4));
  EXPECT_EQ(bytes.weights, streamed.weights + 2 * layer);
  EXPECT_EQ(bytes.gradients, streamed.gradients + 4 * layer);

  options.state_chunk_elements = 1 << 20;  // no more than the unit has
  EXPECT_EQ(MapDeviceMemory(layout, options).bytes.states, 3 * layer * (2 + 4 + 4));
}

TEST(DeviceMemoryTest, KeptActivationsCountByLayerAndToken) {
  PipelineOptions options = Options();
  options.kept_token_bytes = {0, 64, 128, 256, 512};
  const int64_t none = MapDeviceMemory(SmallLayout(false), options).bytes.activations;
  options.keep = {KeepLevel::kNothing,   KeepLevel::kProducts, KeepLevel::kNothing,
                  KeepLevel::kAttention, KeepLevel::kNothing,  KeepLevel::kNothing};
  const DeviceMemoryMap map = MapDeviceMemory(SmallLayout(false), options);
  EXPECT_EQ(map.bytes.activations, none + map.activation_tokens * (256 + 64));
}

TEST(DeviceMemoryTest, WhatGoesToTheHostLeavesSlotsOnTheDevice) {
  PipelineOptions options = Options();
  options.kept_token_bytes = {0, 64, 128, 256, 512};
  options.keep = std::vector<KeepLevel>(6, KeepLevel::kProducts);
  options.stash_slot_count = 3;
  const DeviceMemoryMap plain = MapDeviceMemory(SmallLayout(false), options);
  EXPECT_TRUE(plain.host_parts.empty());
  EXPECT_TRUE(plain.stash_slots.empty());

  // Of four layers the inputs of three and what two of them keep.
  options.boundary_on_host = {false, true, true, true, false, false};
  options.kept_on_host = {false, true, true, false, false, false};
  const DeviceMemoryMap map = MapDeviceMemory(SmallLayout(false), options);
  const int64_t boundary = map.activation_tokens * 8 * 4;
  const int64_t kept = 4 * 128 * 256;  // a micro-batch has 100 tokens, rounded up
  const int64_t kept_on_device = map.activation_tokens * 256;
  const int64_t slot = 128 * (8 * 4 + 256);  // 100 tokens, rounded up
  EXPECT_EQ(map.bytes.activations,
            plain.bytes.activations - 3 * boundary - 2 * kept_on_device + 3 * slot);
  EXPECT_EQ(map.stash_slots.size(), 3u);
  using Part = PinnedArena::Part;
  const auto sum = [](const std::vector<Part>& parts) {
    return std::accumulate(parts.begin(), parts.end(), int64_t{0}, [](int64_t sum, const Part& p) {
      return sum + p.piece_count * p.piece_bytes;
    });
  };
  EXPECT_EQ(sum(map.host_parts), 3 * boundary + 2 * kept);
  EXPECT_EQ(map.host_parts[HostBoundaryPart(3)], (Part{boundary, 1}));
  EXPECT_EQ(map.host_parts[HostKeptPart(2)], (Part{kept / 4, 4})) << "a piece for a micro-batch";
  EXPECT_EQ(map.host_parts[HostBoundaryPart(4)].piece_bytes, 0);
  EXPECT_EQ(map.host_parts[HostKeptPart(3)].piece_bytes, 0);
  // A layer never reads where it writes.
  EXPECT_EQ(map.boundaries[0].offset_bytes, map.boundaries[4].offset_bytes);
  EXPECT_EQ(map.boundaries[1].offset_bytes, map.hidden_gradients.offset_bytes);
  EXPECT_EQ(map.boundaries[2].offset_bytes, map.boundaries[4].offset_bytes);

  options.kept_places = SpreadKeptPlaces(/*count=*/4, /*on_host=*/2, /*on_device=*/1);
  const DeviceMemoryMap mixed = MapDeviceMemory(SmallLayout(false), options);
  EXPECT_EQ(mixed.host_parts[HostKeptPart(1)], (Part{kept / 4, 2}));
  EXPECT_EQ(mixed.kept[1].size_bytes, kept / 4);
  EXPECT_EQ(options.kept_share(1), 0.75);
  EXPECT_EQ(options.kept_share(3), 1);

  options.fold_stash_layers = 2;  // layer 3 writes where layer 1 does
  const DeviceMemoryMap folded = MapDeviceMemory(SmallLayout(false), options);
  EXPECT_EQ(folded.host_parts[HostBoundaryPart(3)].piece_bytes, 0);
  EXPECT_EQ(folded.bytes.total(), mixed.bytes.total());
  EXPECT_EQ(sum(folded.host_parts), sum(mixed.host_parts) - boundary);
}

// All of a unit that is updated there; of one whose state passes over the bus the upper halves of
// its weights.
TEST(DeviceMemoryTest, StatesThatTheStoreLacksAreThoseOfUnitsOnTheDevice) {
  for (const auto dtype : {ComputeDtype::kFloat32, ComputeDtype::kBfloat16}) {
    PipelineOptions options = Options();
    options.compute_dtype = dtype;
    EXPECT_EQ(DeviceStateBytes(MapDeviceMemory(SmallLayout(false), options)), 0);
    using enum UpdatePlacement;
    options.updates = {kHost, kDevice, kOverBus, kOverBusResident, kHost, kHost};
    const ModelLayout layout = SmallLayout(false);
    const auto rounded = [](int64_t bytes) {
      return (bytes + kDeviceAlignmentBytes - 1) / kDeviceAlignmentBytes * kDeviceAlignmentBytes;
    };
    const int64_t elements = layout.units[1].element_count;  // of every layer
    EXPECT_EQ(DeviceStateBytes(MapDeviceMemory(layout, options)),
              3 * rounded(2 * elements) + 2 * rounded(4 * elements));
  }
}

TEST(DeviceMemoryTest, KeptPlacesAreSpreadEvenly) {
  using enum KeptPlace;
  EXPECT_EQ(SpreadKeptPlaces(4, 0, 0), std::vector(4, kNowhere));
  EXPECT_EQ(SpreadKeptPlaces(4, 4, 0), std::vector(4, kHost));
  EXPECT_EQ(SpreadKeptPlaces(6, 2, 2),
            (std::vector{kNowhere, kDevice, kHost, kNowhere, kDevice, kHost}));
  EXPECT_EQ(SpreadKeptPlaces(3, 1, 2), (std::vector{kDevice, kDevice, kHost}));
}

TEST(DeviceMemoryTest, EmbeddingAndHeadShareTheirSlotsWhereBothStream) {
  const ModelLayout layout = SmallLayout(/*tied=*/false);
  PipelineOptions options = Options();
  EXPECT_EQ(MapDeviceMemory(layout, options).weight_slots[kHeadSlot].size_bytes, 0);
  EXPECT_EQ(MapDeviceMemory(layout, options).gradient_slots[kHeadSlot].size_bytes, 0);
  EXPECT_GE(MapDeviceMemory(layout, options).gradient_slots[kEmbeddingSlot].size_bytes,
            4 * layout.units.back().element_count);
  options.updates = {kHost, kHost, kHost, kHost, kHost, kDevice};
  EXPECT_GE(MapDeviceMemory(layout, options).gradient_slots[kHeadSlot].size_bytes,
            4 * layout.units.back().element_count);
}

TEST(DeviceMemoryTest, ATiedModelHasTwoAccumulatorsOfItsTable) {
  const ModelLayout layout = SmallLayout(/*tied=*/true);
  const DeviceMemoryMap map = MapDeviceMemory(layout, Options());
  EXPECT_GE(map.tied_matrix_gradient.size_bytes, 4 * layout.units[0].tensors[0].element_count);
  EXPECT_EQ(MapDeviceMemory(SmallLayout(/*tied=*/false), Options()).tied_matrix_gradient.size_bytes,
            0);
}

TEST(DeviceMemoryTest, OrderDecidesHowManyBoundariesLiveAtOnce) {
  PipelineOptions options = Options();
  const int64_t layer_major = MapDeviceMemory(SmallLayout(false), options).activation_tokens;
  EXPECT_GE(layer_major, 300 + 4 * 31);
  options.order = MicroBatchOrder::kMicroBatchMajor;
  EXPECT_EQ(MapDeviceMemory(SmallLayout(false), options).activation_tokens, 128);
}

}  // namespace
}  // namespace megatrain
