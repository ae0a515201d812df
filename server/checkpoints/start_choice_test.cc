#include "server/checkpoints/start_choice.h"

#include <cstdint>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/checkpoints/checkpoint_catalog_for_test.h"
#include "server/checkpoints/checkpoint_folder_for_test.h"

namespace megatrain {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using StartChoiceTest = CheckpointCatalogTest;

TEST_F(StartChoiceTest, ARewoundJobGoesOnFromWhereItsUserWishes) {
  AddJob("b");
  Save({.step = 1});
  ASSERT_TRUE(catalog_->SetPinned(kNoKey, Name(1), true, "").ok());
  Save({.step = 2});
  Save({.step = 3});
  JobRecord record = Job();
  record.wishes.start_checkpoint = Name(1);
  record.wishes.start_after_number = catalog_->List("jobs/a", 0, 1)->front().number;
  EXPECT_EQ(StartOf(record), Name(1));
  // It writes the second step anew: the third is not where it stands any more.
  const std::string id = MakeCheckpointFolder(FolderOf("a"), {.step = 2, .create_seconds = 100});
  ASSERT_TRUE(catalog_->Commit(record, id).ok());
  EXPECT_THAT(Steps(), ElementsAre(2, 1));
  EXPECT_EQ(StartOf(record), Name(2));
}

TEST_F(StartChoiceTest, WhatARewoundJobSavedLaterIsGoneOnFrom) {
  Save({.step = 1});
  MakeCheckpointFolder(FolderOf("a"), {.step = 2});  // before the wish: nobody was told of it yet
  JobRecord record = Job();
  record.wishes.start_checkpoint = Name(1);
  record.wishes.start_after_number = catalog_->LastNumber("jobs/a").value_or(0);
  EXPECT_EQ(StartOf(record), Name(1));
  MakeCheckpointFolder(FolderOf("a"), {.step = 2, .create_seconds = 100});  // and since then
  EXPECT_EQ(StartOf(record), Name(2));
}

TEST_F(StartChoiceTest, WhoWentBackPastAnUnreadableOneIsNotStoppedByItAgain) {
  Save({.step = 1});
  Save({.step = 5});
  const std::string manifest = FolderOf("a") + "/step-00000005/manifest.json";
  std::filesystem::remove(manifest);
  std::filesystem::create_directories(manifest);  // it can be read no more, and be again
  EXPECT_FALSE(catalog_->StartOf(Job()).ok());
  JobRecord record = Job();
  record.wishes.start_checkpoint = Name(1);
  record.wishes.start_after_number = catalog_->LastNumber("jobs/a").value_or(0);
  EXPECT_EQ(StartOf(record), Name(1));
  for (const int64_t step : {2, 3}) {
    const std::string id = MakeCheckpointFolder(FolderOf("a"), {.step = step});
    ASSERT_TRUE(catalog_->Commit(record, id).ok());
    EXPECT_EQ(StartOf(record), Name(step));
  }
  EXPECT_THAT(Steps(), ElementsAre(3, 2, 5)) << "it keeps no older one";
  EXPECT_THAT(findings_, Each(HasSubstr("old checkpoints of jobs/a stay until the next one")));
  MakeCheckpointFolder(FolderOf("a"), {.step = 6});
  std::filesystem::remove(FolderOf("a") + "/step-00000006/manifest.json");
  std::filesystem::create_directories(FolderOf("a") + "/step-00000006/manifest.json");
  EXPECT_FALSE(catalog_->StartOf(record).ok()) << "this one may be a later one";
}

TEST_F(StartChoiceTest, AWishedCheckpointIsTakenAmongYoungerOnesOfEarlierSteps) {
  Save({.step = 3});
  ASSERT_TRUE(catalog_->SetPinned(kNoKey, Name(3), true, "").ok());
  Save({.step = 2});
  JobRecord record = Job();
  record.wishes.start_checkpoint = Name(3);
  record.wishes.start_after_number = catalog_->List("jobs/a", 0, 1)->front().number;
  EXPECT_EQ(StartOf(record), Name(3));
}

TEST_F(StartChoiceTest, AJobIsToldWhyItDoesNotGoOnFromALaterOne) {
  Save({.step = 1});
  const v1::Checkpoint second = Save({.step = 2});
  JobRecord record = Job();
  record.job.set_last_checkpoint(Name(2));
  ASSERT_TRUE(catalog_->MarkDamaged(second, "adam_m.bin").ok());
  EXPECT_EQ(StartOf(record), Name(1));
  EXPECT_EQ(passed_over_, absl::StrCat(Name(2), " is damaged: adam_m.bin"));
  std::filesystem::remove(FolderOf("a") + "/step-00000001/manifest.json");
  std::filesystem::remove_all(FolderOf("a") + "/step-00000002");
  Restart();
  EXPECT_EQ(StartOf(record), "");
  EXPECT_EQ(passed_over_, absl::StrCat(Name(2), " is not there any more"));
}

TEST_F(StartChoiceTest, ADiskThatFailsIsNoReasonToBeginAnew) {
  Save({.step = 1});
  MakeCheckpointFolder(FolderOf("a"), {.step = 2});  // nobody was told of it yet
  disk_.Break();
  EXPECT_FALSE(catalog_->StartOf(Job()).ok());
  EXPECT_FALSE(catalog_->Figures(catalog_->Get(Name(1))->message).ok());
  EXPECT_FALSE(catalog_->Verify(Name(1)).ok());
  disk_.Repair();
  EXPECT_EQ(catalog_->Get(Name(1))->message.damage(), "");
  EXPECT_EQ(StartOf(Job()), Name(2));
}

}  // namespace
}  // namespace megatrain
