#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/schedule/schedule.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;

constexpr auto kHost = UpdatePlacement::kHost;
constexpr auto kDevice = UpdatePlacement::kDevice;
constexpr auto kOverBus = UpdatePlacement::kOverBus;
constexpr auto kOverBusKeptGradient = UpdatePlacement::kOverBusKeptGradient;
constexpr auto kOverBusResident = UpdatePlacement::kOverBusResident;

std::string Line(const Operation& operation) {
  std::string line = std::string(StreamName(operation.stream)) + ": " + Describe(operation);
  for (const EventKey& wait : operation.waits) {
    line += " <" + Describe(wait);
  }
  for (const EventKey& record : operation.records) {
    line += " >" + Describe(record);
  }
  return line;
}

std::vector<std::string> Lines(const Schedule& schedule) {
  std::vector<std::string> lines;
  for (const Operation& operation : schedule.operations) {
    lines.push_back(Line(operation));
  }
  return lines;
}

int CountKind(const Schedule& schedule, OperationKind kind) {
  return static_cast<int>(
      std::count_if(schedule.operations.begin(), schedule.operations.end(),
                    [kind](const Operation& operation) { return operation.kind == kind; }));
}

TEST(ScheduleBuilderTest, ReadsLikeAStep) {
  const auto schedule = BuildSchedule({.layer_count = 2, .weight_slot_count = 1});
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  EXPECT_THAT(
      Lines(*schedule),
      ElementsAre(
          "h2d: load_weights unit 0 <unit_updated[0] <slot_free[0] >weights_ready[0]",
          "compute: embed_forward unit 0 micro-batch 0 <weights_ready[0] <results_free "
          ">slot_free[0]",
          "h2d: load_weights unit 1 <unit_updated[1] <slot_free[2] >weights_ready[2]",
          "compute: layer_forward unit 1 micro-batch 0 <weights_ready[2] >slot_free[2]",
          "h2d: load_weights unit 2 <unit_updated[2] <slot_free[2] >weights_ready[2]",
          "compute: layer_forward unit 2 micro-batch 0 <weights_ready[2]",
          "h2d: load_weights unit 3 <unit_updated[3] <slot_free[0] >weights_ready[0]",
          "compute: head unit 3 micro-batch 0 <weights_ready[0] >slot_free[0]",
          "compute: finalize_gradients unit 3 >gradient_ready[0]",
          "d2h: download_gradients unit 3 <gradient_ready[0] >slab_free[0]",
          "compute: layer_backward unit 2 micro-batch 0 >slot_free[2]",
          "compute: finalize_gradients unit 2 >gradient_ready[2]",
          "d2h: download_gradients unit 2 <gradient_ready[2] >slab_free[2]",
          "h2d: load_weights unit 1 <slot_free[2] >weights_ready[2]",
          "compute: layer_backward unit 1 micro-batch 0 <weights_ready[2] "
          "<slab_free[2] >slot_free[2]",
          "compute: finalize_gradients unit 1 >gradient_ready[2]",
          "d2h: download_gradients unit 1 <gradient_ready[2]",
          "compute: embed_backward unit 0 micro-batch 0 <slab_free[0]",
          "compute: finalize_gradients unit 0 >gradient_ready[0] >results_ready",
          "d2h: download_gradients unit 0 <gradient_ready[0]",
          "d2h: download_results <results_ready <results_taken >results_on_host >results_free",
          "optimizer: norm <results_on_host >results_taken >result",
          "optimizer: update unit 0 >unit_updated[0]", "optimizer: update unit 1 >unit_updated[1]",
          "optimizer: update unit 2 >unit_updated[2]",
          "optimizer: update unit 3 >unit_updated[3]"));
}

// What stands on one stream, without its waits and records.
std::vector<std::string> Order(const Schedule& schedule, StreamKind stream) {
  std::vector<std::string> order;
  for (const Operation& operation : schedule.operations) {
    if (operation.stream == stream) {
      order.push_back(Describe(operation));
    }
  }
  return order;
}

ScheduleShape AllOnHost(int layers, int micro_batches) {
  return {.layer_count = layers,
          .micro_batch_count = micro_batches,
          .boundary_on_host = std::vector<bool>(layers + 2, true),
          .kept_on_host = std::vector<bool>(layers + 2, false),
          .stash_slot_count = 2};
}

TEST(ScheduleBuilderTest, ActivationsLeaveInForwardAndComeBackInNeedOrderBesideWeights) {
  const auto schedule = BuildSchedule(AllOnHost(/*layers=*/3, /*micro_batches=*/3));
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  const std::vector<std::string> down = Order(*schedule, StreamKind::kDeviceToHost);
  EXPECT_THAT(
      std::vector<std::string>(down.begin(), down.begin() + 10),
      ElementsAre(
          "stash_activations unit 1 micro-batch 0", "stash_activations unit 1 micro-batch 1",
          "stash_activations unit 1 micro-batch 2", "stash_activations unit 2 micro-batch 0",
          "stash_activations unit 2 micro-batch 1", "stash_activations unit 2 micro-batch 2",
          "stash_activations unit 3 micro-batch 0", "stash_activations unit 3 micro-batch 1",
          "stash_activations unit 3 micro-batch 2", "download_gradients unit 4"));
  // Weights of layer 1 come as soon as layer 3, whose slot they take, is done: two micro-batches
  // of layer 2 have come by then.
  EXPECT_THAT(
      Order(*schedule, StreamKind::kHostToDevice),
      ElementsAre(
          "load_weights unit 0", "load_weights unit 1", "load_weights unit 2",
          "load_weights unit 3", "load_weights unit 4", "fetch_activations unit 3 micro-batch 0",
          "fetch_activations unit 3 micro-batch 1", "fetch_activations unit 3 micro-batch 2",
          "fetch_activations unit 2 micro-batch 0", "fetch_activations unit 2 micro-batch 1",
          "load_weights unit 1", "fetch_activations unit 2 micro-batch 2",
          "fetch_activations unit 1 micro-batch 0", "fetch_activations unit 1 micro-batch 1",
          "fetch_activations unit 1 micro-batch 2"));
}

TEST(ScheduleBuilderTest, OnlyMicroBatchesWhoseKeptDataWaitOnTheHostGoThere) {
  ScheduleShape shape = AllOnHost(/*layers=*/1, /*micro_batches=*/3);
  shape.boundary_on_host.clear();
  shape.kept_on_host.assign(3, true);
  shape.kept_places = {KeptPlace::kDevice, KeptPlace::kHost, KeptPlace::kNowhere};
  const auto schedule = BuildSchedule(shape);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  EXPECT_EQ(Order(*schedule, StreamKind::kDeviceToHost).front(),
            "stash_activations unit 1 micro-batch 1");
  EXPECT_EQ(CountKind(*schedule, OperationKind::kStashActivations), 1);
  EXPECT_EQ(CountKind(*schedule, OperationKind::kFetchActivations), 1);
}

TEST(ScheduleBuilderTest, EvaluationStashesNothing) {
  ScheduleShape shape = AllOnHost(/*layers=*/3, /*micro_batches=*/2);
  shape.forward_only = true;
  const auto schedule = BuildSchedule(shape);
  EXPECT_EQ(CountKind(*schedule, OperationKind::kStashActivations), 0);
  EXPECT_EQ(CountKind(*schedule, OperationKind::kFetchActivations), 0);
}

TEST(ScheduleBuilderTest, EndsShareSlotsWhereOneIsDoneBeforeTheOtherBegins) {
  ScheduleShape shape = {.layer_count = 2};
  EXPECT_TRUE(shape.ends_share_slots());
  EXPECT_EQ(UnitSlots(shape).OwnWeightSlot(shape.head_unit()), kEmbeddingSlot);
  EXPECT_EQ(UnitSlots(shape).GradientSlot(shape.head_unit()), kEmbeddingSlot);
  shape.tied = true;
  EXPECT_FALSE(shape.ends_share_slots());
  shape = {.layer_count = 2, .order = MicroBatchOrder::kMicroBatchMajor};
  EXPECT_FALSE(shape.ends_share_slots());
  shape = {.layer_count = 2, .updates = {kHost, kHost, kHost, kDevice}};
  EXPECT_FALSE(shape.ends_share_slots());
  EXPECT_EQ(UnitSlots(shape).OwnWeightSlot(shape.head_unit()), kHeadSlot);
}

TEST(ScheduleBuilderTest, ResidentWeightsCrossTheBusOnce) {
  for (const auto order : {MicroBatchOrder::kLayerMajor, MicroBatchOrder::kMicroBatchMajor}) {
    const auto schedule = BuildSchedule(
        {.layer_count = 5, .micro_batch_count = 3, .order = order, .weight_slot_count = 5});
    EXPECT_EQ(CountKind(*schedule, OperationKind::kLoadWeights), 7);
  }
}

TEST(ScheduleBuilderTest, LayerMajorLoadsOncePerPassAndKeepsLayersOverTheTurn) {
  const int layers = 6;
  for (int slots = 1; slots <= layers; ++slots) {
    for (int micro_batches : {1, 4}) {
      const auto schedule = BuildSchedule(
          {.layer_count = layers, .micro_batch_count = micro_batches, .weight_slot_count = slots});
      EXPECT_EQ(CountKind(*schedule, OperationKind::kLoadWeights), 2 + 2 * layers - slots);
    }
  }
}

TEST(ScheduleBuilderTest, MicroBatchMajorKeepsLayersOverEveryTurn) {
  const auto schedule = BuildSchedule({.layer_count = 6,
                                       .micro_batch_count = 3,
                                       .order = MicroBatchOrder::kMicroBatchMajor,
                                       .weight_slot_count = 2});
  // Six passes of six layers, less two layers at each of five turns.
  EXPECT_EQ(CountKind(*schedule, OperationKind::kLoadWeights), 2 + 6 * 6 - 5 * 2);
}

TEST(ScheduleBuilderTest, EvaluationOnlyLooks) {
  const auto schedule =
      BuildSchedule({.layer_count = 3, .micro_batch_count = 2, .forward_only = true});
  for (const Operation& operation : schedule->operations) {
    EXPECT_EQ(operation.gradient_slot, -1) << Describe(operation);
  }
  EXPECT_EQ(CountKind(*schedule, OperationKind::kHeadLoss), 2);
  EXPECT_EQ(CountKind(*schedule, OperationKind::kDownloadGradients), 0);
  EXPECT_EQ(CountKind(*schedule, OperationKind::kUpdate), 0);
}

TEST(ScheduleBuilderTest, AUnitOnTheDeviceCrossesNoBus) {
  // Embedding and the second layer.
  const auto schedule = BuildSchedule(
      {.layer_count = 2, .weight_slot_count = 1, .updates = {kDevice, kHost, kDevice, kHost}});
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  EXPECT_EQ(CountKind(*schedule, OperationKind::kLoadWeights), 2);
  EXPECT_EQ(CountKind(*schedule, OperationKind::kDownloadGradients), 2);
  const std::vector<std::string> lines = Lines(*schedule);
  EXPECT_THAT(std::vector<std::string>(lines.end() - 5, lines.end()),
              ElementsAre("optimizer: norm <results_on_host >results_taken >result >norm_known",
                          "device_update: update_on_device unit 0 <norm_known >unit_updated[0]",
                          "optimizer: update unit 1 >unit_updated[1]",
                          "device_update: update_on_device unit 2 >unit_updated[2]",
                          "optimizer: update unit 3 >unit_updated[3]"));
  EXPECT_EQ(lines.front(),
            "compute: embed_forward unit 0 micro-batch 0 <unit_updated[0] <results_free");
}

TEST(ScheduleBuilderTest, AnUpdateOverTheBusPassesInChunksThroughTheRing) {
  const auto schedule = BuildSchedule({.layer_count = 2,
                                       .updates = {kDevice, kOverBus, kOverBusResident, kHost},
                                       .state_chunks = {0, 2, 1, 0},
                                       .staging_slot_count = 2});
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  // The first layer's weights and gradient cross as the head's do; the second's do not.
  EXPECT_EQ(CountKind(*schedule, OperationKind::kLoadWeights), 2);
  EXPECT_EQ(CountKind(*schedule, OperationKind::kDownloadGradients), 2);
  const std::vector<std::string> lines = Lines(*schedule);
  EXPECT_THAT(
      std::vector<std::string>(lines.end() - 12, lines.end()),
      ElementsAre("optimizer: norm <results_on_host >results_taken >result >norm_known",
                  "device_update: update_on_device unit 0 <norm_known >unit_updated[0]",
                  "state_h2d: load_state unit 1 chunk 0 <norm_known >state_ready[0]",
                  "state_update: update_chunk unit 1 chunk 0 <state_ready[0] >chunk_updated[0]",
                  "state_d2h: store_state unit 1 chunk 0 <chunk_updated[0] >staging_free[0]",
                  "state_h2d: load_state unit 1 chunk 1 >state_ready[1]",
                  "state_update: update_chunk unit 1 chunk 1 <state_ready[1] >chunk_updated[1]",
                  "state_d2h: store_state unit 1 chunk 1 <chunk_updated[1] >unit_updated[1]",
                  "state_h2d: load_state unit 2 chunk 0 <staging_free[0] >state_ready[0]",
                  "state_update: update_chunk unit 2 chunk 0 <state_ready[0] >chunk_updated[0]",
                  "state_d2h: store_state unit 2 chunk 0 <chunk_updated[0] >unit_updated[2]",
                  "optimizer: update unit 3 >unit_updated[3]"));
}

// Its slot is free for the next layer once it is finalized: compute does both, in that order.
TEST(ScheduleBuilderTest, AGradientThatIsKeptLeavesItsSlotAndDoesNotCross) {
  const auto schedule =
      BuildSchedule({.layer_count = 3,
                     .updates = {kHost, kHost, kOverBusKeptGradient, kHost, kHost},
                     .state_chunks = {0, 0, 1, 0, 0}});
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  EXPECT_EQ(CountKind(*schedule, OperationKind::kDownloadGradients), 4);
  const std::vector<std::string> lines = Lines(*schedule);
  EXPECT_THAT(lines, testing::Contains("compute: finalize_gradients unit 2"));
  EXPECT_THAT(lines, testing::Contains(testing::AllOf(
                         testing::StartsWith("compute: layer_backward unit 1 micro-batch 0"),
                         testing::Not(testing::HasSubstr("slab_free")))));
  EXPECT_THAT(lines, testing::Contains(testing::AllOf(
                         testing::StartsWith("compute: layer_backward unit 2 micro-batch 0"),
                         testing::HasSubstr("slab_free"))));
}

TEST(ScheduleBuilderTest, LayersOnTheDeviceHaveSlotsAfterTheSharedOnes) {
  const ScheduleShape shape = {.layer_count = 5,
                               .weight_slot_count = 2,
                               .gradient_slot_count = 2,
                               .updates = {kHost, kDevice, kHost, kHost, kDevice, kHost, kHost}};
  EXPECT_EQ(shape.streamed_layer_count(), 3);
  EXPECT_EQ(shape.used_weight_slot_count(), 6);
  const UnitSlots slots(shape);
  EXPECT_EQ(slots.OwnWeightSlot(1), 4);
  EXPECT_EQ(slots.OwnWeightSlot(2), -1);
  EXPECT_EQ(slots.OwnWeightSlot(4), 5);
  EXPECT_EQ(slots.GradientSlot(2), 2);
  EXPECT_EQ(slots.GradientSlot(3), 3);
  EXPECT_EQ(slots.GradientSlot(4), 5);
  EXPECT_EQ(slots.GradientSlot(5), 2);
}

TEST(ScheduleBuilderTest, RefusesEmptyShapes) {
  EXPECT_EQ(BuildSchedule({.layer_count = 0}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(BuildSchedule({.micro_batch_count = 0}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(BuildSchedule({.weight_slot_count = 0}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(BuildSchedule({.gradient_slot_count = 0}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(BuildSchedule({.updates = {kDevice, kDevice}}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(BuildSchedule({.boundary_on_host = {true, true}}).status().code(),
            absl::StatusCode::kInvalidArgument);
  ScheduleShape shape = AllOnHost(1, 1);
  shape.stash_slot_count = 0;
  EXPECT_EQ(BuildSchedule(shape).status().code(), absl::StatusCode::kInvalidArgument);
  shape = AllOnHost(1, 2);
  shape.kept_places = {KeptPlace::kHost};
  EXPECT_EQ(BuildSchedule(shape).status().code(), absl::StatusCode::kInvalidArgument);
  shape = AllOnHost(1, 1);
  shape.order = MicroBatchOrder::kMicroBatchMajor;
  EXPECT_EQ(BuildSchedule(shape).status().code(), absl::StatusCode::kInvalidArgument);
  const std::vector<UpdatePlacement> updates = {kHost, kOverBus, kHost};
  EXPECT_EQ(BuildSchedule({.updates = updates}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(BuildSchedule({.updates = updates, .state_chunks = {1, 0, 1}}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(BuildSchedule({.updates = updates, .state_chunks = {0, 1, 0}, .staging_slot_count = 0})
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(BuildSchedule({.updates = updates, .state_chunks = {0, 1, 0}}).ok());
}

}  // namespace
}  // namespace megatrain
