#include "runtime/planner/placement_space.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/model/layer_template.h"
#include "runtime/planner/placement_case_for_test.h"
#include "runtime/schedule/schedule.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(PlacementSpaceTest, TheLargestThatFitsIsFound) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 200; ++i) {
    std::vector<double> excesses = {static_cast<double>(random() % 40) - 30};
    for (int value = 1; value < 40; ++value) {
      excesses.push_back(excesses.back() + static_cast<double>(random() % 4));
    }
    const auto above = std::upper_bound(excesses.begin(), excesses.end(), 0);
    const int found =
        LargestThatFits(0, 39, excesses[0], [&](int value) { return excesses[value]; });
    EXPECT_EQ(found, std::max<int64_t>(above - excesses.begin() - 1, 0)) << i;
  }
}

TEST(PlacementSpaceTest, MicroBatchesAreOfOneSizeButForTheLast) {
  const PlacementCase shape("qwen2.5-1.5b");
  PlacementRequest request = Request(80, 1024, kLargeGpu);
  const PlacementSpace space(shape.layout, request, shape.memory);
  // Not 64 and 16, nor 30, 30 and 20.
  EXPECT_THAT(space.MicroBatchRows(),
              ElementsAre(40, 27, 20, 16, 14, 12, 10, 8, 7, 6, 5, 4, 3, 2, 1));
  request.step = {.rows = 32, .row_tokens = 64};
  EXPECT_THAT(space.MicroBatchRows(), ElementsAre(32, 16));  // not 24, and no fewer
  request.step = {.rows = 3, .row_tokens = 100000};
  EXPECT_THAT(space.MicroBatchRows(), ElementsAre(1));
  request.step = Request(80, 1024, kLargeGpu).step;
  request.micro_batch_rows = 100;
  EXPECT_THAT(space.MicroBatchRows(), ElementsAre(80));
}

TEST(PlacementSpaceTest, AFilledChoiceFitsAndHasRoomForNoMore) {
  const PlacementCase shape("qwen2.5-7b");
  const PlacementRequest request = Request(64, 1024, 64 * kGibibyte);
  const PlacementSpace space(shape.layout, request, shape.memory);
  const Choice least = space.Least(MicroBatchOrder::kLayerMajor, 8, KeepLevel::kNothing);
  ASSERT_LE(space.ExcessOf(least), 0);
  for (const size_t first : {0, 1, 2, 3}) {
    const Choice filled = space.Fill(least, space.ExcessOf(least), first, nullptr);
    EXPECT_LE(space.ExcessOf(filled), 0);
    const PlacementSpace::Dimension& dimension = space.dimensions()[first];
    ASSERT_TRUE(dimension.fills);
    EXPECT_GT(filled.*dimension.count, dimension.least);
    if (filled.*dimension.count < dimension.most) {
      Choice larger = filled;
      ++(larger.*dimension.count);
      EXPECT_GT(space.ExcessOf(larger), 0) << first;
    }
    const Choice but = space.Fill(least, space.ExcessOf(least), first, &dimension);
    EXPECT_EQ(but.*dimension.count, dimension.least);
  }
}

TEST(PlacementSpaceTest, NothingThatIsFixedIsVaried) {
  const PlacementCase shape("qwen2.5-7b");
  PlacementRequest request = Request(64, 1024, kLargeGpu);
  request.device_state_units = 3;
  const PlacementSpace space(shape.layout, request, shape.memory);
  const Choice least = space.Least(MicroBatchOrder::kLayerMajor, 8, KeepLevel::kNothing);
  EXPECT_EQ(least.device_units, 3);
  EXPECT_THAT(space.Values(space.dimensions()[0], least), IsEmpty());
  EXPECT_THAT(space.Values(space.dimensions()[1], least),
              ElementsAre(0, 1, 2, 4, 9, 14, 18, 23, 28));
}

}  // namespace
}  // namespace megatrain
