#include "server/checkpoints/checkpoint_catalog.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/checkpoint/training_log.h"
#include "server/checkpoints/checkpoint_catalog_for_test.h"
#include "server/checkpoints/checkpoint_folder_for_test.h"
#include "server/errors/errors.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

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

TEST_F(CheckpointCatalogTest, AJobIsDescribedByWhatIsThere) {
  v1::Job job = Job().job;
  const auto described = [&] {
    EXPECT_TRUE(catalog_->Describe({&job}).ok());
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

TEST_F(CheckpointCatalogTest, JobsOfAPageAreDescribedEachByItsOwn) {
  AddJob("b");
  AddJob("c");
  Save({.step = 1, .loss = 0.5});
  MakeCheckpointFolder(FolderOf("b"), {.step = 3, .loss = 0.25});
  MakeCheckpointFolder(FolderOf("b"), {.step = 4});
  Restart();
  std::vector<v1::Job> jobs = {Job("c").job, Job("b").job, Job("a").job};
  jobs[0].set_last_checkpoint("jobs/c/checkpoints/step-00000009");  // it is gone
  ASSERT_TRUE(catalog_->Describe({&jobs[0], &jobs[1], &jobs[2]}).ok());
  EXPECT_EQ(jobs[0].last_checkpoint(), "");
  EXPECT_EQ(jobs[1].last_checkpoint(), "jobs/b/checkpoints/step-00000004");
  EXPECT_EQ(jobs[1].best_checkpoint(), "jobs/b/checkpoints/step-00000003");
  EXPECT_EQ(jobs[2].last_checkpoint(), Name(1));
  EXPECT_EQ(jobs[2].best_checkpoint(), Name(1));
  EXPECT_TRUE(catalog_->Describe({}).ok()) << "a page without jobs";
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
