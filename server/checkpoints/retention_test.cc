#include "server/checkpoints/retention.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

v1::Checkpoint Of(int64_t step) {
  v1::Checkpoint checkpoint;
  checkpoint.set_name(std::to_string(step));
  checkpoint.set_step(step);
  checkpoint.set_trigger(v1::CHECKPOINT_TRIGGER_PERIODIC);
  return checkpoint;
}

TEST(RetentionTest, TheNewestStay) {
  const std::vector<v1::Checkpoint> all = {Of(40), Of(30), Of(20), Of(10)};
  EXPECT_THAT(CheckpointsToRemove(all, {.keep_last = 2}), ElementsAre("20", "10"));
  EXPECT_THAT(CheckpointsToRemove(all, {.keep_last = 4}), IsEmpty());
}

TEST(RetentionTest, TheBestThePinnedTheNeededAndTheNewestOfAPauseStay) {
  std::vector<v1::Checkpoint> all = {Of(60), Of(50), Of(40), Of(30), Of(20), Of(10)};
  all[1].set_pinned(true);
  all[2].set_trigger(v1::CHECKPOINT_TRIGGER_PAUSE);
  all[3].set_best(true);
  all[4].set_trigger(v1::CHECKPOINT_TRIGGER_PAUSE);
  EXPECT_THAT(CheckpointsToRemove(all, {.keep_last = 1, .needed = {"10"}}), ElementsAre("20"));
}

TEST(RetentionTest, ADamagedOneDoesNotCountAndGoesOnceAWholeOneIsThere) {
  std::vector<v1::Checkpoint> all = {Of(30), Of(20), Of(10)};
  all[0].set_damage("adam_m.bin");
  EXPECT_THAT(CheckpointsToRemove(all, {.keep_last = 1}), ElementsAre("30", "10"));
  all.resize(1);
  EXPECT_THAT(CheckpointsToRemove(all, {.keep_last = 1}), IsEmpty());
}

TEST(RetentionTest, WhatARewoundJobLeftGoesUnlessItIsPinned) {
  // At step 10 again, it wrote 20 anew.
  std::vector<v1::Checkpoint> all = {Of(20), Of(40), Of(30), Of(10)};
  all[1].set_pinned(true);
  EXPECT_THAT(
      CheckpointsToRemove(
          all,
          {.keep_last = 3, .needed = {}, .rewound_step = 10, .before_rewind = {"40", "30", "10"}}),
      ElementsAre("30"));
}

}  // namespace
}  // namespace megatrain
