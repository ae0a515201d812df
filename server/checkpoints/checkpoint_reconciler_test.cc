#include "server/checkpoints/checkpoint_reconciler.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/crc32c.h"
#include "server/checkpoints/checkpoint_catalog_for_test.h"
#include "server/checkpoints/checkpoint_folder_for_test.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using CheckpointReconcilerTest = CheckpointCatalogTest;

TEST_F(CheckpointReconcilerTest, AtStartTheDiskIsTheTruth) {
  Save({.step = 1});
  Save({.step = 2});
  MakeCheckpointFolder(FolderOf("a"), {.step = 3});  // committed, and the server died
  std::filesystem::create_directories(FolderOf("a") + "/tmp-step-00000004");
  std::filesystem::create_directories(FolderOf("a") + "/step-00000005");  // no manifest
  std::filesystem::remove(FolderOf("a") + "/step-00000001/manifest.json");
  MakeCheckpointFolder(FolderOf("nobody"), {.step = 6});
  Restart();
  EXPECT_THAT(Steps(), ElementsAre(3, 2));
  EXPECT_FALSE(std::filesystem::exists(FolderOf("a") + "/tmp-step-00000004"));
  EXPECT_TRUE(std::filesystem::exists(FolderOf("a") + "/step-00000005")) << "for an operator";
  EXPECT_THAT(findings_, SizeIs(3));
  EXPECT_THAT(*catalog_->List("", 0, -1), SizeIs(2));
}

TEST_F(CheckpointReconcilerTest, OneThatWasWrittenAnewReplacesItsRow) {
  const std::string uid = Save({.step = 1}).uid();
  ASSERT_TRUE(catalog_->SetPinned(kNoKey, Name(1), true, "").ok());
  MakeCheckpointFolder(FolderOf("a"), {.step = 1, .create_seconds = 100});
  Restart();
  const v1::Checkpoint found = catalog_->Get(Name(1))->message;
  EXPECT_NE(found.uid(), uid);
  EXPECT_TRUE(found.pinned());
}

TEST_F(CheckpointReconcilerTest, OneThatWasBeingReplacedWhenAllDiedIsBackAtStart) {
  const std::string uid = Save({.step = 1}).uid();
  std::filesystem::rename(FolderOf("a") + "/step-00000001",
                          FolderOf("a") + "/tmp-replaced-step-00000001");
  std::filesystem::create_directories(FolderOf("a") + "/tmp-step-00000001");
  Restart();
  EXPECT_THAT(Steps(), ElementsAre(1));
  EXPECT_EQ(catalog_->Get(Name(1))->message.uid(), uid);
  EXPECT_EQ(StartOf(Job()), Name(1));
}

TEST_F(CheckpointReconcilerTest, OneThatWasBeingReplacedWhenTheEngineDiedIsGoneOnFrom) {
  const std::string uid = Save({.step = 1}).uid();
  for (const bool settles : {true, false}) {
    MakeCheckpointFolder(folder_, {.step = 1, .create_seconds = 100});
    std::filesystem::rename(folder_ + "/step-00000001", FolderOf("a") + "/tmp-step-00000001");
    std::filesystem::rename(FolderOf("a") + "/step-00000001",
                            FolderOf("a") + "/tmp-replaced-step-00000001");
    if (settles) {
      catalog_->Settle(Job());
      EXPECT_TRUE(std::filesystem::exists(FolderOf("a") + "/step-00000001"));
    }
    EXPECT_EQ(StartOf(Job()), Name(1));
    EXPECT_EQ(passed_over_, "");
    EXPECT_THAT(Steps(), ElementsAre(1));
    EXPECT_EQ(catalog_->Get(Name(1))->message.uid(), uid);
    std::filesystem::remove_all(FolderOf("a") + "/tmp-step-00000001");
  }
}

TEST_F(CheckpointReconcilerTest, AFolderThatCannotBeReadIsItsJobsAffairAlone) {
  Save({.step = 1});
  std::filesystem::rename(FolderOf("a"), folder_ + "/away");
  std::ofstream(FolderOf("a")) << "no folder";
  Restart();
  EXPECT_THAT(findings_, ElementsAre(HasSubstr("the checkpoints of jobs/a stay as they are: ")));
  EXPECT_FALSE(catalog_->StartOf(Job()).ok());
  AddJob("b");
  EXPECT_EQ(StartOf(Job("b")), "");
  std::filesystem::remove(FolderOf("a"));
  std::filesystem::rename(folder_ + "/away", FolderOf("a"));
  EXPECT_EQ(StartOf(Job()), Name(1)) << "nothing was forgotten";
}

TEST_F(CheckpointReconcilerTest, OneOfANewerFormatIsNeitherForgottenNorDamaged) {
  Save({.step = 1});
  Save({.step = 2});
  const std::string path = FolderOf("a") + "/step-00000002/manifest.json";
  std::string text = *files_.ReadFile(path, 10000);
  const std::string format = "\"format\": 1";
  text.replace(text.find(format), format.size(), "\"format\": 2");
  const size_t checksum_at = text.size() - std::string("01234567\"\n}\n").size();
  text.replace(checksum_at, 8, absl::StrFormat("%08x", Crc32c(text.substr(0, checksum_at))));
  std::ofstream(path) << text;
  Restart();
  EXPECT_THAT(findings_, ElementsAre(HasSubstr("cannot be read and stays where it is")));
  EXPECT_THAT(Steps(), ElementsAre(2, 1));
  EXPECT_THAT(std::string(catalog_->StartOf(Job()).status().message()),
              HasSubstr("format is 2 but this version reads 1"));
  EXPECT_TRUE(absl::IsUnimplemented(catalog_->Verify(Name(2)).status()));
  EXPECT_EQ(catalog_->Get(Name(2))->message.damage(), "");
  JobRecord record = Job();
  record.wishes.start_checkpoint = Name(1);
  record.wishes.start_after_number = catalog_->LastNumber("jobs/a").value_or(0);
  EXPECT_EQ(StartOf(record), Name(1));
  record.wishes.start_checkpoint = Name(2);
  EXPECT_FALSE(catalog_->StartOf(record).ok());
}

TEST_F(CheckpointReconcilerTest, WhatTheEngineCommittedAndToldNobodyOfIsGoneOnFrom) {
  Save({.step = 1});
  MakeCheckpointFolder(FolderOf("a"), {.step = 2});
  EXPECT_EQ(StartOf(Job()), Name(2));
  EXPECT_EQ(passed_over_, "");
  EXPECT_THAT(Steps(), ElementsAre(2, 1));
}

TEST_F(CheckpointReconcilerTest, AnAbsentDiskForgetsNothing) {
  Save({.step = 1});
  std::filesystem::rename(folder_ + "/jobs", folder_ + "/unmounted");
  const absl::Status status = TryRestart();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("mount the disk"));
  std::filesystem::remove_all(folder_ + "/jobs");
  std::filesystem::rename(folder_ + "/unmounted", folder_ + "/jobs");
  Restart();
  EXPECT_THAT(Steps(), ElementsAre(1));
  // As the message says for what is gone for good.
  std::filesystem::remove_all(folder_ + "/jobs");
  std::filesystem::create_directories(FolderOf("a"));
  Restart();
  EXPECT_THAT(Steps(), IsEmpty());
}

}  // namespace
}  // namespace megatrain
