#include "runtime/planner/placement.h"

#include <algorithm>
#include <optional>
#include <random>

#include "gtest/gtest.h"
#include "runtime/config/model_layout.h"
#include "runtime/hoststore/host_store.h"
#include "runtime/hoststore/pinned_arena.h"
#include "runtime/pipeline/device_memory.h"
#include "runtime/pipeline/pipeline_options.h"
#include "runtime/planner/machine_speeds.h"
#include "runtime/planner/operation_costs.h"
#include "runtime/planner/placement_case_for_test.h"
#include "runtime/planner/step_prediction.h"

namespace megatrain {
namespace {

struct Case : PlacementCase {
  using PlacementCase::PlacementCase;

  std::optional<Placement> Choose(const PlacementRequest& request) const {
    return ChoosePlacement(config, layout, request, memory, {});
  }
};

int64_t CountOnDevice(const Placement& placement) {
  const std::vector<UpdatePlacement>& updates = placement.pipeline.updates;
  return std::count(updates.begin(), updates.end(), UpdatePlacement::kDevice);
}

int64_t HostGradientBytes(const Case& shape, const Placement& placement) {
  return HostStore::GradientBytes(
      shape.layout, {.gradient_bytes = 2, .gradients = HostGradients(placement.pipeline)});
}

int64_t CountFullyKept(const Placement& placement) {
  const std::vector<KeepLevel>& keep = placement.pipeline.keep;
  return std::count_if(keep.begin() + 1, keep.end() - 1,
                       [](KeepLevel level) { return level >= KeepLevel::kProducts; });
}

TEST(PlacementTest, ASmallModelTrainsOnTheDeviceAlone) {
  const Case shape("qwen2.5-1.5b");
  const Placement placement = shape.Choose(Request(64, 1024, kLargeGpu)).value();
  EXPECT_EQ(placement.pipeline.order, MicroBatchOrder::kMicroBatchMajor);
  EXPECT_EQ(CountOnDevice(placement), 30);
  EXPECT_EQ(CountFullyKept(placement), 28);
  EXPECT_GE(placement.pipeline.max_micro_batch_tokens, 8192);
}

// Memory that nothing else wants keeps what norms and activation functions made.
TEST(PlacementTest, RoomThatIsLeftKeepsEverythingOfTheLastLayers) {
  const Case shape("qwen2.5-1.5b");
  const Placement roomy = shape.Choose(Request(8, 1024, kLargeGpu)).value();
  const std::vector<KeepLevel>& keep = roomy.pipeline.keep;
  EXPECT_EQ(std::count(keep.begin() + 1, keep.end() - 1, KeepLevel::kAll), 28);

  PlacementRequest request = Request(64, 1024, kLargeGpu);
  request.micro_batch_rows = 64;
  const Placement full = shape.Choose(request).value();
  EXPECT_EQ(CountOnDevice(full), 30);
  EXPECT_EQ(full.pipeline.keep_of(1), KeepLevel::kProducts);
  EXPECT_EQ(full.pipeline.keep_of(28), KeepLevel::kAll);
  request.keep_level = KeepLevel::kProducts;
  EXPECT_GT(shape.Choose(request).value().predicted.seconds, full.predicted.seconds);
}

// They would cross the bus, and are cheaper to make again.
TEST(PlacementTest, WhatIsKeptOnTheHostIsProductsAlone) {
  const Case shape("qwen2.5-72b");
  const Placement placement = shape.Choose(Request(64, 1024, kLargeGpu)).value();
  const PipelineOptions& options = placement.pipeline;
  ASSERT_GT(options.CountKept(KeptPlace::kHost, options.max_micro_batches), 0);
  for (int unit = 1; unit <= 80; ++unit) {
    if (options.kept_by_place(unit)) {
      EXPECT_EQ(options.keep_of(unit), KeepLevel::kProducts) << unit;
    }
  }
}

TEST(PlacementTest, SevenBillionLeaveTheLastLayersToTheHostAtMost) {
  const Case shape("qwen2.5-7b");
  const Placement placement = shape.Choose(Request(64, 1024, kLargeGpu)).value();
  EXPECT_EQ(placement.pipeline.order, MicroBatchOrder::kMicroBatchMajor);
  EXPECT_GE(CountOnDevice(placement), 20);
  EXPECT_EQ(CountFullyKept(placement), 28);
  EXPECT_GE(placement.pipeline.max_micro_batch_tokens, 8192);
  EXPECT_TRUE(placement.pipeline.on_device(0));
  EXPECT_TRUE(placement.pipeline.on_device(29));
}

TEST(PlacementTest, AModelWhoseGradientsDoNotFitStreamsLayerByLayer) {
  const Case shape("qwen2.5-32b");
  const Placement placement = shape.Choose(Request(64, 1024, kLargeGpu)).value();
  EXPECT_EQ(placement.pipeline.order, MicroBatchOrder::kLayerMajor);
  EXPECT_LT(CountOnDevice(placement), 20);
}

TEST(PlacementTest, AFractionOfTheMemoryIsEnough) {
  const Case shape("qwen2.5-7b");
  const Placement large = shape.Choose(Request(64, 1024, kLargeGpu)).value();
  const Placement small = shape.Choose(Request(64, 1024, 64 * kGibibyte)).value();
  EXPECT_GT(small.predicted.seconds, large.predicted.seconds);
  EXPECT_FALSE(shape.Choose(Request(64, 1024, kGibibyte)).has_value());
}

// The rows of the streaming table must be feasible, and are not slower than this.
TEST(PlacementTest, ShapesLargerThanTheDeviceFitAndAreFast) {
  struct Row {
    const char* shape;
    int64_t layers;
    int64_t device_bytes;
    double most_seconds;
  };
  constexpr int64_t kTaken = 5 * kGibibyte / 2;  // by a driver's context, libraries, a reserve
  for (const Row& row :
       {Row{"qwen2.5-7b", 0, 64 * kGibibyte - kTaken, 5.7},
        Row{"qwen2.5-7b", 0, 24 * kGibibyte - kTaken, 6.4}, Row{"qwen2.5-14b", 0, kLargeGpu, 10.8},
        Row{"qwen2.5-32b", 0, kLargeGpu, 25.5}, Row{"qwen2.5-72b", 0, kLargeGpu, 64.5},
        Row{"qwen2.5-7b", 56, 64 * kGibibyte - kTaken, 12},
        Row{"qwen2.5-7b", 180, 64 * kGibibyte - kTaken, 39}}) {
    const Case shape(row.shape, row.layers);
    const std::optional<Placement> placement = shape.Choose(Request(64, 1024, row.device_bytes));
    ASSERT_TRUE(placement.has_value()) << row.shape << " " << row.layers;
    EXPECT_LE(placement->predicted.seconds, row.most_seconds) << row.shape << " " << row.layers;
  }
}

TEST(PlacementTest, NeverAboveItsCaps) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 12; ++i) {
    const Case shape(i % 2 == 0 ? "qwen2.5-1.5b" : "qwen2.5-7b", 1 + static_cast<int>(i));
    PlacementRequest request = Request(1 + static_cast<int64_t>(random() % 64), 1024,
                                       static_cast<int64_t>(4 + random() % 60) * kGibibyte);
    request.host_bytes = static_cast<int64_t>(random() % 16) * kGibibyte;
    if (const std::optional<Placement> placement = shape.Choose(request)) {
      const DeviceMemoryMap map = MapDeviceMemory(shape.layout, placement->pipeline);
      EXPECT_LE(map.bytes.total(), request.device_bytes) << i;
      EXPECT_LE(PinnedArena::Bytes(map.host_parts) + HostGradientBytes(shape, *placement),
                request.host_bytes)
          << i;
    }
  }
}

// 32.8 billion gradients of 2 bytes, and a host with room for a third of them.
TEST(PlacementTest, GradientsThatTheHostHasNoRoomForWaitOnTheDevice) {
  const Case shape("qwen2.5-32b");
  PlacementRequest request = Request(64, 1024, kLargeGpu);
  request.host_bytes = 20 * kGibibyte;
  const Placement placement = shape.Choose(request).value();
  const DeviceMemoryMap map = MapDeviceMemory(shape.layout, placement.pipeline);
  EXPECT_LE(PinnedArena::Bytes(map.host_parts) + HostGradientBytes(shape, placement),
            request.host_bytes);
  EXPECT_GT(map.bytes.kept_gradients, 20 * kGibibyte);
  EXPECT_LE(map.bytes.total(), request.device_bytes);
  request.device_bytes = 40 * kGibibyte;
  EXPECT_FALSE(shape.Choose(request).has_value());
}

TEST(PlacementTest, MoreHostMemoryIsNeverSlower) {
  const Case shape("qwen2.5-14b");
  double best = 1e9;
  for (const int64_t gibibytes : {0, 8, 16, 24, 32, 48, 64, 128, 256}) {
    PlacementRequest request = Request(64, 1024, kLargeGpu);
    request.host_bytes = gibibytes * kGibibyte;
    const std::optional<Placement> placement = shape.Choose(request);
    ASSERT_TRUE(placement.has_value()) << gibibytes;
    EXPECT_LE(placement->predicted.seconds, best * 1.005) << gibibytes;
    best = std::min(best, placement->predicted.seconds);
  }
}

TEST(PlacementTest, EveryChoiceFitsAndAllWhatIsFixedHolds) {
  const Case shape("qwen2.5-1.5b");
  for (const int64_t gibibytes : {8, 16, 24, 48, 96}) {
    for (const auto order : {MicroBatchOrder::kMicroBatchMajor, MicroBatchOrder::kLayerMajor}) {
      PlacementRequest request = Request(7, 3000, gibibytes * kGibibyte);
      request.order = order;
      request.micro_batch_rows = 2;
      request.keep_level = KeepLevel::kAttention;
      request.device_state_units = 3;
      const std::optional<Placement> placement = shape.Choose(request);
      if (!placement) {
        continue;
      }
      EXPECT_EQ(placement->pipeline.order, order);
      EXPECT_EQ(placement->pipeline.max_micro_batch_tokens, 6000);
      EXPECT_EQ(placement->pipeline.max_step_tokens, 21000);
      EXPECT_EQ(placement->pipeline.max_micro_batches, 4);
      EXPECT_EQ(CountOnDevice(*placement), 3);
      EXPECT_EQ(placement->pipeline.keep[5], KeepLevel::kAttention);
      EXPECT_LE(MapDeviceMemory(shape.layout, placement->pipeline).bytes.total(),
                request.device_bytes);
    }
  }
}

TEST(PlacementTest, MoreMemoryIsNeverSlower) {
  const Case shape("qwen2.5-14b");
  double best = 1e9;
  for (const int64_t gibibytes : {16, 24, 32, 40, 52, 64, 80, 96, 112, 128, 137}) {
    const std::optional<Placement> placement =
        shape.Choose(Request(64, 1024, gibibytes * kGibibyte));
    ASSERT_TRUE(placement.has_value()) << gibibytes;
    EXPECT_LE(placement->predicted.seconds, best * 1.005) << gibibytes;
    best = std::min(best, placement->predicted.seconds);
  }
}

// A whole layer of all micro-batches is too coarse a piece for what a 14B leaves of the device.
TEST(PlacementTest, WhatIsLeftOfTheDeviceKeepsSomeMicroBatches) {
  const Case shape("qwen2.5-14b");
  const Placement placement = shape.Choose(Request(64, 1024, kLargeGpu)).value();
  const PipelineOptions& options = placement.pipeline;
  EXPECT_GT(options.CountKept(KeptPlace::kDevice, options.max_micro_batches), 0);
  EXPECT_LE(placement.predicted.seconds, 10.4);
}

TEST(PlacementTest, TheSmallestIsSmallerThanTheBest) {
  const Case shape("qwen2.5-7b");
  const PlacementRequest request = Request(64, 1024, kLargeGpu);
  const Placement smallest =
      SmallestPlacement(shape.config, shape.layout, request, shape.memory, {});
  EXPECT_LT(MapDeviceMemory(shape.layout, smallest.pipeline).bytes.total(), 16 * kGibibyte);
}

// A byte through a slab is read and written once more: copies and updates have less of the host's
// memory each.
TEST(StepPredictionTest, SlabsTakeOfTheHostsMemory) {
  const Case shape("qwen2.5-7b");
  PlacementRequest request = Request(64, 1024, 22 * kGibibyte);
  request.device_state_units = 0;
  request.bus_update_units = 0;
  PipelineOptions options = shape.Choose(request)->pipeline;
  MachineSpeeds speeds;
  speeds.host_memory_bytes = 2 * speeds.bus_up_bytes;
  speeds.slab_bytes = speeds.bus_up_bytes;
  const Operation load{
      .kind = OperationKind::kLoadWeights, .stream = StreamKind::kHostToDevice, .unit = 1};
  const auto cost = [&] {
    return OperationCosts(shape.config, shape.layout, options, speeds, request.step, 1).Of(load);
  };
  const StepPredictor predictor{shape.config, shape.layout, request.step, speeds};
  const OperationCost pinned = cost();
  const SimulatedStep pinned_step = predictor.Predict(options);
  options.pin = PinMode::kSlabs;
  EXPECT_EQ(cost().host_bytes, 3 * pinned.host_bytes);
  EXPECT_DOUBLE_EQ(cost().seconds, 1.5 * pinned.seconds);
  speeds.slab_bytes = speeds.bus_up_bytes / 4;
  EXPECT_DOUBLE_EQ(cost().seconds, 4 * pinned.seconds);
  speeds.slab_bytes = speeds.bus_up_bytes;
  const auto updates = static_cast<size_t>(Resource::kHostUpdates);
  const SimulatedStep step = predictor.Predict(options);
  EXPECT_GT(step.seconds, pinned_step.seconds);
  EXPECT_GT(step.busy_seconds[updates], 1.05 * pinned_step.busy_seconds[updates]);
}

// Of the design's own arithmetic: 65,536 tokens of 43.0 GFLOP at some 620 TFLOP/s.
TEST(StepPredictionTest, SevenBillionOnTheDeviceTakeAFewSeconds) {
  const Case shape("qwen2.5-7b");
  PlacementRequest request = Request(64, 1024, 200 * kGibibyte);
  const Placement resident = shape.Choose(request).value();
  EXPECT_GT(resident.predicted.seconds, 4.2);
  EXPECT_LT(resident.predicted.seconds, 4.8);
  request.device_state_units = 0;  // 7.6 billion updates at 3.4 a second, hardly hidden
  request.order = MicroBatchOrder::kMicroBatchMajor;
  request.micro_batch_rows = 8;
  EXPECT_GT(shape.Choose(request)->predicted.seconds, resident.predicted.seconds + 0.5);
}

}  // namespace
}  // namespace megatrain
