// A catalogue over a folder and a database of its own, for tests of it and its parts.

#ifndef SERVER_CHECKPOINTS_CHECKPOINT_CATALOG_FOR_TEST_H_
#define SERVER_CHECKPOINTS_CHECKPOINT_CATALOG_FOR_TEST_H_

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "megatrain/v1/checkpoint.pb.h"
#include "runtime/base/faulty_file_system.h"
#include "runtime/base/posix_file_system.h"
#include "runtime/base/virtual_clock.h"
#include "server/checkpoints/checkpoint_catalog.h"
#include "server/checkpoints/checkpoint_folder_for_test.h"
#include "server/database/database.h"
#include "server/database/request_key.h"
#include "server/database/request_log.h"
#include "server/jobs/memory_job_store.h"
#include "server/resources/resource_table.h"

namespace megatrain {

inline const RequestKey kNoKey = {"Test", "", ""};

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
    if (!catalog.ok()) {
      return catalog.status();
    }
    catalog_ = *std::move(catalog);
    return absl::OkStatus();
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
    const std::optional<v1::Checkpoint>& checkpoint = start->checkpoint;
    return checkpoint.has_value() ? checkpoint->name() : "";
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

}  // namespace megatrain

#endif  // SERVER_CHECKPOINTS_CHECKPOINT_CATALOG_FOR_TEST_H_
