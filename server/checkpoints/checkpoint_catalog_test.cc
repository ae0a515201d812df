#include "server/checkpoints/checkpoint_catalog.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/faulty_file_system.h"
#include "runtime/base/posix_file_system.h"
#include "runtime/base/virtual_clock.h"
#include "runtime/checkpoint/training_log.h"
#include "server/checkpoints/checkpoint_folder_for_test.h"
#include "server/database/database.h"
#include "server/database/request_log.h"
#include "server/errors/errors.h"
#include "server/jobs/job_wish.h"
#include "server/jobs/memory_job_store.h"
#include "server/resources/resource_table.h"

namespace megatrain {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const RequestKey kNoKey = {"Test", "", ""};

class CheckpointCatalogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = absl::StrCat(::testing::TempDir(), "/",
                           ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
    auto database =
        Database::Open(folder_ + "/db", {RequestLogMigration(), ResourceTableMigration()});
    ASSERT_TRUE(database.ok()) << database.status();
    database_ = *std::move(database);
    AddJob("a");
    Restart();
  }

  absl::Status TryRestart() {
    catalog_.reset();
    auto catalog = CheckpointCatalog::Open(
        {*database_, disk_, clock_, jobs_, folder_ + "/jobs",
         [this](int64_t freed_bytes) { freed_bytes_ += freed_bytes; },
         [this](const std::string& finding) { findings_.push_back(finding); }});
    if (catalog.ok()) {
      catalog_ = *std::move(catalog);
    }
    return catalog.status();
  }

  void Restart() {
    const absl::Status status = TryRestart();
    ASSERT_TRUE(status.ok()) << status;
  }

  void AddJob(const std::string& id, int64_t keep_last = 2, const std::string& forked_from = "") {
    v1::Job job;
    job.set_name("jobs/" + id);
    job.set_state(v1::JOB_STATE_RUNNING);
    job.set_forked_from(forked_from);
    job.mutable_spec()->mutable_checkpoint()->set_keep_last(keep_last);
    ASSERT_TRUE(jobs_.Create(kNoKey, job).ok());
  }

  std::string FolderOf(const std::string& id) { return folder_ + "/jobs/" + id + "/checkpoints"; }

  JobRecord Job(const std::string& id = "a") { return *jobs_.Get("jobs/" + id); }

  // As the engine does, and then the controller.
  v1::Checkpoint Save(const FolderForTest& options) {
    const std::string id = MakeCheckpointFolder(FolderOf("a"), options);
    const auto committed = catalog_->Commit(Job(), id);
    EXPECT_TRUE(committed.ok()) << committed.status();
    return *committed;
  }

  std::vector<int64_t> Steps() {
    std::vector<int64_t> steps;
    const auto rows = catalog_->List("jobs/a", 0, -1);
    for (const auto& [number, row] : *rows) {
      steps.push_back(row.step());
      EXPECT_TRUE(std::filesystem::exists(row.path())) << row.path();
    }
    return steps;
  }

  std::string StartOf(const JobRecord& record) {
    const auto start = catalog_->StartOf(record);
    EXPECT_TRUE(start.ok()) << start.status();
    passed_over_ = start->passed_over;
    return start->checkpoint.has_value() ? start->checkpoint->name() : "";
  }

  static std::string Name(int64_t step) {
    return absl::StrCat("jobs/a/checkpoints/step-0000000", step);
  }

  std::string folder_;
  PosixFileSystem files_;
  FaultyFileSystem disk_{&files_};
  std::string passed_over_;  // at the last StartOf
  VirtualClock clock_;
  MemoryJobStore jobs_;
  std::unique_ptr<Database> database_;
  int64_t freed_bytes_ = 0;
  std::vector<std::string> findings_;
  std::unique_ptr<CheckpointCatalog> catalog_;
};

TEST_F(CheckpointCatalogTest, OldOnesGoWhenTheNextIsCommitted) {
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

TEST_F(CheckpointCatalogTest, TheBestByEvaluationStays) {
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

TEST_F(CheckpointCatalogTest, CommitIsIdempotentAndRefusesWhatIsNotThere) {
  const v1::Checkpoint first = Save({.step = 1});
  const auto again = catalog_->Commit(Job(), "step-00000001");
  EXPECT_EQ(again->uid(), first.uid());
  EXPECT_TRUE(absl::IsDataLoss(catalog_->Commit(Job(), "step-00000009").status()));
  const std::string id = MakeCheckpointFolder(FolderOf("a"), {.step = 2});
  std::ofstream(FolderOf("a") + "/" + id + "/weights_hi.bin") << "short";
  EXPECT_TRUE(absl::IsDataLoss(catalog_->Commit(Job(), id).status()));
  EXPECT_THAT(Steps(), ElementsAre(1));
}

TEST_F(CheckpointCatalogTest, AtStartTheDiskIsTheTruth) {
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

TEST_F(CheckpointCatalogTest, OneThatWasWrittenAnewReplacesItsRow) {
  const std::string uid = Save({.step = 1}).uid();
  ASSERT_TRUE(catalog_->SetPinned(kNoKey, Name(1), true, "").ok());
  MakeCheckpointFolder(FolderOf("a"), {.step = 1, .create_seconds = 100});
  Restart();
  const v1::Checkpoint found = catalog_->Get(Name(1))->message;
  EXPECT_NE(found.uid(), uid);
  EXPECT_TRUE(found.pinned());
}

TEST_F(CheckpointCatalogTest, OneThatWasBeingReplacedWhenAllDiedIsBackAtStart) {
  const std::string uid = Save({.step = 1}).uid();
  std::filesystem::rename(FolderOf("a") + "/step-00000001",
                          FolderOf("a") + "/tmp-replaced-step-00000001");
  std::filesystem::create_directories(FolderOf("a") + "/tmp-step-00000001");
  Restart();
  EXPECT_THAT(Steps(), ElementsAre(1));
  EXPECT_EQ(catalog_->Get(Name(1))->message.uid(), uid);
  EXPECT_EQ(StartOf(Job()), Name(1));
}

TEST_F(CheckpointCatalogTest, OneThatWasBeingReplacedWhenTheEngineDiedIsGoneOnFrom) {
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

TEST_F(CheckpointCatalogTest, WhatIsAdoptedTakesThePlaceOfOlderOnes) {
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

TEST_F(CheckpointCatalogTest, NothingGoesWhileAJobIsToGoBack) {
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

TEST_F(CheckpointCatalogTest, TheBestHasALossAndIsWhole) {
  Save({.step = 1, .loss = 0.5});
  Save({.step = 2, .loss = 0.75});
  Save({.step = 3, .loss = std::nan("")});
  EXPECT_TRUE(catalog_->Get(Name(1))->message.best());
  Save({.step = 4});
  EXPECT_THAT(Steps(), ElementsAre(4, 3, 1));
}

TEST_F(CheckpointCatalogTest, EveryDamagedByteIsFoundAndThePreviousOneIsOffered) {
  Save({.step = 1});
  Save({.step = 2});
  EXPECT_TRUE(catalog_->Verify(Name(2))->valid());
  for (const std::string name : {"weights_hi.bin", "manifest.json"}) {
    const std::string path = FolderOf("a") + "/step-00000002/" + name;
    const std::string whole = *files_.ReadFile(path, 1 << 20);
    for (size_t i = 0; i < whole.size(); ++i) {
      std::string damaged = whole;
      damaged[i] = static_cast<char>(damaged[i] ^ 1);
      std::ofstream(path) << damaged;
      const auto result = catalog_->Verify(Name(2));
      ASSERT_TRUE(result.ok()) << result.status();
      ASSERT_FALSE(result->valid()) << name << ", byte " << i;
      ASSERT_THAT(result->failure(), HasSubstr(name));
      ASSERT_EQ(StartOf(Job()), Name(1));
      ASSERT_THAT(passed_over_, HasSubstr(absl::StrCat(Name(2), " is damaged: ")));
    }
    std::ofstream(path) << whole;
    EXPECT_TRUE(catalog_->Verify(Name(2))->valid());
    EXPECT_EQ(StartOf(Job()), Name(2)) << "it was repaired";
  }
}

TEST_F(CheckpointCatalogTest, ARewoundJobGoesOnFromWhereItsUserWishes) {
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

TEST_F(CheckpointCatalogTest, WhatARewoundJobSavedLaterIsGoneOnFrom) {
  Save({.step = 1});
  MakeCheckpointFolder(FolderOf("a"), {.step = 2});  // before the wish: nobody was told of it yet
  JobRecord record = Job();
  record.wishes.start_checkpoint = Name(1);
  record.wishes.start_after_number = catalog_->LastNumber("jobs/a").value_or(0);
  EXPECT_EQ(StartOf(record), Name(1));
  MakeCheckpointFolder(FolderOf("a"), {.step = 2, .create_seconds = 100});  // and since then
  EXPECT_EQ(StartOf(record), Name(2));
}

TEST_F(CheckpointCatalogTest, WhoWentBackPastAnUnreadableOneIsNotStoppedByItAgain) {
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
    const auto start = catalog_->StartOf(record);
    ASSERT_TRUE(start.ok()) << start.status();
    EXPECT_EQ(start->checkpoint->name(), Name(step));
  }
  EXPECT_THAT(Steps(), ElementsAre(3, 2, 5)) << "it keeps no older one";
  EXPECT_THAT(findings_, Each(HasSubstr("old checkpoints of jobs/a stay until the next one")));
  MakeCheckpointFolder(FolderOf("a"), {.step = 6});
  std::filesystem::remove(FolderOf("a") + "/step-00000006/manifest.json");
  std::filesystem::create_directories(FolderOf("a") + "/step-00000006/manifest.json");
  EXPECT_FALSE(catalog_->StartOf(record).ok()) << "this one may be a later one";
}

TEST_F(CheckpointCatalogTest, AFolderThatCannotBeReadIsItsJobsAffairAlone) {
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

TEST_F(CheckpointCatalogTest, OneOfANewerFormatIsNeitherForgottenNorDamaged) {
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

TEST_F(CheckpointCatalogTest, AWishedCheckpointIsTakenAmongYoungerOnesOfEarlierSteps) {
  Save({.step = 3});
  ASSERT_TRUE(catalog_->SetPinned(kNoKey, Name(3), true, "").ok());
  Save({.step = 2});
  JobRecord record = Job();
  record.wishes.start_checkpoint = Name(3);
  record.wishes.start_after_number = catalog_->List("jobs/a", 0, 1)->front().number;
  EXPECT_EQ(StartOf(record), Name(3));
}

TEST_F(CheckpointCatalogTest, AForkKeepsWhatItComesFromUntilItHasItsOwn) {
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

TEST_F(CheckpointCatalogTest, OnlyWhatNobodyNeedsIsDeleted) {
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

TEST_F(CheckpointCatalogTest, FilesAreReadByTheirNamesOnly) {
  Save({.step = 1});
  const auto files = catalog_->Files(Name(1));
  ASSERT_THAT(*files, SizeIs(2));
  EXPECT_EQ(files->front().path(), "manifest.json");
  EXPECT_EQ(files->back().path(), "weights_hi.bin");
  EXPECT_EQ(files->back().size_bytes(), 16);
  EXPECT_TRUE(catalog_->OpenFile(Name(1), "weights_hi.bin").ok());
  EXPECT_EQ(ReasonOf(catalog_->OpenFile(Name(1), "../../log").status()), "FILE_NOT_FOUND");
}

TEST_F(CheckpointCatalogTest, WhatTheEngineCommittedAndToldNobodyOfIsGoneOnFrom) {
  Save({.step = 1});
  MakeCheckpointFolder(FolderOf("a"), {.step = 2});
  EXPECT_EQ(StartOf(Job()), Name(2));
  EXPECT_EQ(passed_over_, "");
  EXPECT_THAT(Steps(), ElementsAre(2, 1));
}

TEST_F(CheckpointCatalogTest, AJobIsDescribedByWhatIsThere) {
  v1::Job job = Job().job;
  const auto described = [&] {
    EXPECT_TRUE(catalog_->Describe(job).ok());
    return std::vector<std::string>{job.last_checkpoint(), job.best_checkpoint()};
  };
  Save({.step = 1, .loss = 0.5});
  EXPECT_THAT(described(), ElementsAre(Name(1), Name(1)));
  MakeCheckpointFolder(FolderOf("a"), {.step = 2, .loss = 0.25});  // nobody was told of it
  Restart();
  EXPECT_THAT(described(), ElementsAre(Name(2), Name(2)));
  const v1::Checkpoint newest = catalog_->Get(Name(2))->message;
  ASSERT_TRUE(catalog_->MarkDamaged(newest, "a byte").ok());
  EXPECT_THAT(described(), ElementsAre(Name(1), Name(1)));
  std::filesystem::remove_all(FolderOf("a") + "/step-00000001");
  Restart();
  EXPECT_THAT(described(), ElementsAre("", ""));
}

TEST_F(CheckpointCatalogTest, AJobIsToldWhyItDoesNotGoOnFromALaterOne) {
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

TEST_F(CheckpointCatalogTest, ADiskThatFailsIsNoReasonToBeginAnew) {
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

TEST_F(CheckpointCatalogTest, AnAbsentDiskForgetsNothing) {
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

// The engine writes one of the same name before the row of the old one goes.
TEST_F(CheckpointCatalogTest, OnlyTheVeryCheckpointIsRemovedOrMarked) {
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

TEST_F(CheckpointCatalogTest, NothingThatIsUsedGoes) {
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

TEST_F(CheckpointCatalogTest, AVerificationThatNobodyWaitsForEndsAndSaysNothing) {
  Save({.step = 1});
  const auto stop = [](int64_t, int64_t) { return absl::CancelledError("nobody waits"); };
  EXPECT_TRUE(absl::IsCancelled(catalog_->Verify(Name(1), stop).status()));
  EXPECT_EQ(catalog_->Get(Name(1))->message.damage(), "");
  EXPECT_TRUE(catalog_->Verify(Name(1))->valid());
}

TEST_F(CheckpointCatalogTest, TheFiguresThatACheckpointRemembersAreRead) {
  TrainingLog log;
  AddToLog({.step = 1, .loss = 0.1, .gradient_norm = 2, .learning_rate = 1e-3, .token_count = 7},
           log);
  AddToLog({.kind = LogEntry::Kind::kEvaluation, .step = 1, .loss = 0.3}, log);
  MakeCheckpointFolder(FolderOf("a"), {.step = 1, .log = log});
  const auto committed = catalog_->Commit(Job(), "step-00000001");
  ASSERT_TRUE(committed.ok()) << committed.status();
  const auto figures = catalog_->Figures(*committed);
  ASSERT_TRUE(figures.ok()) << figures.status();
  ASSERT_THAT(*figures, SizeIs(2));
  EXPECT_EQ((*figures)[0].step().loss(), 0.1);
  EXPECT_EQ((*figures)[0].step().token_count(), 7);
  EXPECT_EQ((*figures)[1].evaluation().loss(), 0.3);
  std::ofstream(FolderOf("a") + "/step-00000001/training_log.bin") << std::string(112, 'x');
  EXPECT_TRUE(absl::IsDataLoss(catalog_->Figures(*committed).status()));
}

TEST_F(CheckpointCatalogTest, AJobWithoutRoomForItsCheckpointIsTold) {
  v1::Job job = Job().job;
  job.mutable_plan()->set_checkpoint_bytes(1);
  EXPECT_TRUE(catalog_->CheckRoom(job).ok());
  job.mutable_plan()->set_checkpoint_bytes(int64_t{1} << 60);
  EXPECT_EQ(ReasonOf(catalog_->CheckRoom(job)), "DISK_SPACE_EXCEEDED");
}

}  // namespace
}  // namespace megatrain
