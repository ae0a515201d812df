#include "server/checkpoints/checkpoint_remover.h"

#include <cmath>
#include <cstdint>
#include <filesystem>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/checkpoints/checkpoint_catalog_for_test.h"
#include "server/checkpoints/checkpoint_folder_for_test.h"
#include "server/errors/errors.h"
#include "server/jobs/job_wish.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using CheckpointRemoverTest = CheckpointCatalogTest;

TEST_F(CheckpointRemoverTest, OldOnesGoWhenTheNextIsCommitted) {
  EXPECT_EQ(StartOf(Job()), "");
  const int64_t size_bytes = Save({.step = 1}).size_bytes();
  Save({.step = 2});
  EXPECT_EQ(freed_bytes_, 0);
  Save({.step = 3});
  EXPECT_THAT(Steps(), ElementsAre(3, 2));
  EXPECT_EQ(freed_bytes_, size_bytes);
  EXPECT_EQ(StartOf(Job()), Name(3));
  catalog_.reset();  // what it removes in the background is gone
  EXPECT_FALSE(std::filesystem::exists(FolderOf("a") + "/step-00000001"));
  for (const auto& entry : std::filesystem::directory_iterator(FolderOf("a"))) {
    EXPECT_TRUE(entry.path().filename().string().starts_with("step-")) << entry.path();
  }
}

TEST_F(CheckpointRemoverTest, TheBestByEvaluationStays) {
  Save({.step = 1, .loss = 0.5});
  Save({.step = 2, .loss = 0.7});
  Save({.step = 3, .loss = 0.6});
  Save({.step = 4});
  EXPECT_THAT(Steps(), ElementsAre(4, 3, 1));
  EXPECT_EQ(*catalog_->Best(Job().job), Name(1));
  Save({.step = 5, .loss = 0.4});
  EXPECT_THAT(Steps(), ElementsAre(5, 4));
  EXPECT_EQ(*catalog_->Best(Job().job), Name(5));
}

TEST_F(CheckpointRemoverTest, WhatIsAdoptedTakesThePlaceOfOlderOnes) {
  for (const bool restarts : {true, false}) {
    const int64_t step = restarts ? 1 : 4;
    Save({.step = step});
    Save({.step = step + 1});
    MakeCheckpointFolder(FolderOf("a"), {.step = step + 2});
    if (restarts) {
      Restart();
    } else {
      catalog_->Settle(Job());
    }
    EXPECT_THAT(Steps(), ElementsAre(step + 2, step + 1));
  }
  std::filesystem::remove(FolderOf("a") + "/step-00000006/manifest.json");
  MakeCheckpointFolder(FolderOf("a"), {.step = 7});
  catalog_->Settle(Job());
  EXPECT_THAT(Steps(), ElementsAre(7, 6, 5)) << "for one that may be none no other goes";
}

TEST_F(CheckpointRemoverTest, NothingGoesWhileAJobIsToGoBack) {
  Save({.step = 1});
  Save({.step = 2});
  JobRecord record = Job();
  record.job.set_state(v1::JOB_STATE_PAUSED);
  record.job.mutable_spec()->mutable_checkpoint()->set_keep_last(1);
  ASSERT_TRUE(jobs_.Update(record, {}).ok());
  const JobWish wish{.kind = JobWish::Kind::kResume,
                     .start_checkpoint = Name(1),
                     .start_after_number = catalog_->LastNumber("jobs/a").value_or(0)};
  ASSERT_TRUE(jobs_.RecordWish(kNoKey, "jobs/a", wish).ok());
  record = Job();
  catalog_->Settle(record);
  Restart();
  EXPECT_THAT(Steps(), ElementsAre(2, 1));
  MakeCheckpointFolder(FolderOf("a"), {.step = 2, .create_seconds = 100});
  catalog_->Settle(record);
  EXPECT_THAT(Steps(), ElementsAre(2));
}

TEST_F(CheckpointRemoverTest, TheBestHasALossAndIsWhole) {
  Save({.step = 1, .loss = 0.5});
  Save({.step = 2, .loss = 0.75});
  Save({.step = 3, .loss = std::nan("")});
  EXPECT_TRUE(catalog_->Get(Name(1))->message.best());
  Save({.step = 4});
  EXPECT_THAT(Steps(), ElementsAre(4, 3, 1));
}

TEST_F(CheckpointRemoverTest, AForkKeepsWhatItComesFromUntilItHasItsOwn) {
  Save({.step = 1});
  AddJob("fork", 2, Name(1));
  EXPECT_EQ(StartOf(Job("fork")), Name(1));
  Save({.step = 2});
  Save({.step = 3});
  Save({.step = 4});
  EXPECT_THAT(Steps(), ElementsAre(4, 3, 1));
  EXPECT_EQ(ReasonOf(catalog_->Delete(kNoKey, Name(1), false)), "CHECKPOINT_NEEDED");
  ASSERT_TRUE(catalog_->MarkDamaged(catalog_->Get(Name(1))->message, "adam_m.bin").ok());
  EXPECT_TRUE(absl::IsNotFound(catalog_->StartOf(Job("fork")).status()));
  JobRecord fork = Job("fork");
  fork.job.set_last_checkpoint("jobs/fork/checkpoints/step-00000002");
  ASSERT_TRUE(jobs_.Update(fork, {}).ok());
  EXPECT_TRUE(catalog_->Delete(kNoKey, Name(1), false).ok());
}

TEST_F(CheckpointRemoverTest, OnlyWhatNobodyNeedsIsDeleted) {
  Save({.step = 1});
  const v1::Checkpoint second = Save({.step = 2});
  EXPECT_EQ(ReasonOf(catalog_->Delete(kNoKey, Name(2), false)), "CHECKPOINT_NEEDED");
  const auto pinned = catalog_->SetPinned(kNoKey, Name(1), true, "");
  EXPECT_EQ(ReasonOf(catalog_->Delete(kNoKey, Name(1), false)), "CHECKPOINT_PINNED");
  EXPECT_EQ(ReasonOf(catalog_->SetPinned(kNoKey, Name(1), false, "0").status()), "ETAG_MISMATCH");
  EXPECT_TRUE(catalog_->SetPinned(kNoKey, Name(1), false, pinned->etag()).ok());
  const RequestKey key = {"DeleteCheckpoint", "id-1", "payload"};
  EXPECT_TRUE(catalog_->Delete(key, Name(1), /*validate_only=*/true).ok());
  EXPECT_THAT(Steps(), ElementsAre(2, 1));
  EXPECT_TRUE(catalog_->Delete(key, Name(1), false).ok());
  EXPECT_TRUE(catalog_->Delete(key, Name(1), false).ok()) << "a repeat";
  EXPECT_THAT(Steps(), ElementsAre(2));
  JobRecord ended = Job();
  ended.job.set_state(v1::JOB_STATE_SUCCEEDED);
  ASSERT_TRUE(jobs_.Update(ended, {}).ok());
  EXPECT_TRUE(catalog_->Delete(kNoKey, Name(2), false).ok());
  EXPECT_THAT(Steps(), IsEmpty());
  EXPECT_TRUE(absl::IsNotFound(catalog_->Delete(kNoKey, Name(2), false)));
}

// The engine writes one of the same name before the row of the old one goes.
TEST_F(CheckpointRemoverTest, OnlyTheVeryCheckpointIsRemovedOrMarked) {
  const v1::Checkpoint old = Save({.step = 1});
  Save({.step = 2});
  MakeCheckpointFolder(FolderOf("a"), {.step = 1, .content = "anew", .create_seconds = 100});
  Save({.step = 3});  // takes the old one's row
  EXPECT_EQ(*files_.ReadFile(FolderOf("a") + "/step-00000001/weights_hi.bin", 100), "anew");
  ASSERT_TRUE(catalog_->Commit(Job(), "step-00000001").ok());
  ASSERT_TRUE(catalog_->MarkDamaged(old, "adam_m.bin").ok());
  const v1::Checkpoint anew = catalog_->Get(Name(1))->message;
  EXPECT_NE(anew.uid(), old.uid());
  EXPECT_EQ(anew.damage(), "");
}

TEST_F(CheckpointRemoverTest, NothingThatIsUsedGoes) {
  Save({.step = 1});
  auto used = catalog_->Use(Name(1));
  ASSERT_TRUE(used.ok()) << used.status();
  Save({.step = 2});
  Save({.step = 3});
  EXPECT_THAT(Steps(), ElementsAre(3, 2, 1));
  EXPECT_EQ(ReasonOf(catalog_->Delete(kNoKey, Name(1), false)), "CHECKPOINT_IN_USE");
  used->reset();
  ASSERT_TRUE(catalog_->Files(Name(1)).ok());
  Save({.step = 4});
  EXPECT_THAT(Steps(), ElementsAre(4, 3, 1)) << "its next file may be read in a moment";
  clock_.Advance(absl::Minutes(2));
  Save({.step = 5});
  EXPECT_THAT(Steps(), ElementsAre(5, 4));
  EXPECT_TRUE(absl::IsNotFound(catalog_->Use(Name(1)).status()));
}

}  // namespace
}  // namespace megatrain
