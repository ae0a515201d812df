#include "runtime/planner/placement_starts.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/model/layer_template.h"
#include "runtime/planner/machine_speeds.h"
#include "runtime/planner/placement.h"
#include "runtime/planner/placement_case_for_test.h"
#include "runtime/planner/placement_choice.h"
#include "runtime/planner/placement_request.h"
#include "runtime/planner/placement_space.h"
#include "runtime/schedule/schedule.h"

namespace megatrain {
namespace {

TEST(PlacementStartsTest, EachIsThereOnceAndLargerMicroBatchesAreFirst) {
  const PlacementCase shape("qwen2.5-7b");
  const PlacementRequest request = Request(64, 1024, kLargeGpu);
  const PlacementSpace space(shape.layout, request, shape.memory);
  std::vector<Choice> starts = PlacementStarts(space);
  EXPECT_TRUE(std::is_sorted(starts.begin(), starts.end(), [](const Choice& a, const Choice& b) {
    return a.micro_batch_rows > b.micro_batch_rows;
  }));
  for (Choice& start : starts) {
    start = Canonical(start, shape.layout);
    EXPECT_EQ(start.device_units, 0);
  }
  std::sort(starts.begin(), starts.end());
  EXPECT_EQ(std::adjacent_find(starts.begin(), starts.end()), starts.end());
  EXPECT_NE(starts.front().order, starts.back().order);
}

TEST(PlacementStartsTest, WhatIsFixedHolds) {
  const PlacementCase shape("qwen2.5-7b");
  PlacementRequest request = Request(64, 1024, kLargeGpu);
  request.micro_batch_rows = 8;
  request.order = MicroBatchOrder::kLayerMajor;
  request.keep_level = KeepLevel::kAttention;
  request.host_boundary_layers = 5;
  request.device_state_units = 3;
  const PlacementSpace space(shape.layout, request, shape.memory);
  const std::vector<Choice> starts = PlacementStarts(space);
  ASSERT_EQ(starts.size(), 1);
  EXPECT_EQ(starts.front().micro_batch_rows, 8);
  EXPECT_EQ(starts.front().order, MicroBatchOrder::kLayerMajor);
  EXPECT_EQ(starts.front().keep, KeepLevel::kAttention);
  EXPECT_EQ(starts.front().host_boundary_layers, 5);
  EXPECT_EQ(starts.front().device_units, 3);
}

bool Fits(const PlacementCase& shape, const PlacementRequest& request) {
  return ChoosePlacement(shape.config, shape.layout, request, shape.memory, {}).has_value();
}

// With how many boundaries on the host the request fits when it is told so.
std::vector<int> FittingBoundaries(const PlacementCase& shape, PlacementRequest request) {
  std::vector<int> counts;
  for (int layers = 0; layers <= 28; ++layers) {
    request.host_boundary_layers = layers;
    if (Fits(shape, request)) {
      counts.push_back(layers);
    }
  }
  return counts;
}

// Inputs of layers that neither the device nor the host has room for alone lie on both.
TEST(PlacementStartsTest, WhatFitsWithSomeBoundariesOnTheHostFitsWithoutBeingTold) {
  const PlacementCase shape("qwen2.5-1.5b");  // 42 GiB of inputs of layers, 2.9 of gradients
  int split_count = 0;
  for (const int64_t device_gibibytes : {10, 20, 30, 40, 50}) {
    for (const int64_t host_gibibytes : {2, 12, 22, 32, 42, 52}) {
      PlacementRequest request = Request(512, 1024, device_gibibytes * kGibibyte);
      request.host_bytes = host_gibibytes * kGibibyte;
      request.order = MicroBatchOrder::kLayerMajor;
      request.micro_batch_rows = 8;
      const std::vector<int> counts = FittingBoundaries(shape, request);
      EXPECT_EQ(Fits(shape, request), !counts.empty()) << device_gibibytes << " " << host_gibibytes;
      split_count += !counts.empty() && counts.front() > 0 && counts.back() < 28 ? 1 : 0;
    }
  }
  EXPECT_GT(split_count, 3);
}

}  // namespace
}  // namespace megatrain
