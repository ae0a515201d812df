// The checkpoints that the server knows: a row in the database and a folder on disk each.

#ifndef SERVER_CHECKPOINTS_CHECKPOINT_CATALOG_H_
#define SERVER_CHECKPOINTS_CHECKPOINT_CATALOG_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "megatrain/v1/checkpoint.pb.h"
#include "megatrain/v1/checkpoint_service.pb.h"
#include "runtime/base/clock.h"
#include "runtime/base/file_system.h"
#include "runtime/base/mutex.h"
#include "server/database/database.h"
#include "server/database/request_key.h"
#include "server/executor/executor.h"
#include "server/jobs/job_checkpoints.h"
#include "server/jobs/job_store.h"
#include "server/resources/resource_table.h"

namespace megatrain {

// The engine makes the folders; the disk is the truth about them, the rows about what is wished.
// A folder leaves its name before its row goes, and its bytes after. Thread-safe; calls block on
// the disk.
class CheckpointCatalog final : public JobCheckpoints {
 public:
  // All outlive it.
  struct Parts {
    Database& database;
    FileSystem& disk;
    const Clock& clock;
    JobStore& jobs;
    std::string jobs_folder;                         // of `{job}/checkpoints`
    std::function<void(int64_t)> on_retention;       // bytes that it freed
    std::function<void(const std::string&)> report;  // what an operator should read
  };

  // Takes in valid folders without a row, forgets rows without a valid folder, and removes what
  // saves and removals left. Before any engine runs.
  static absl::StatusOr<std::unique_ptr<CheckpointCatalog>> Open(const Parts& parts);

  absl::StatusOr<std::string> Folder(const v1::Job& job) override;
  absl::StatusOr<std::optional<v1::Checkpoint>> StartOf(const JobRecord& record) override;
  absl::StatusOr<v1::Checkpoint> Commit(const JobRecord& record,
                                        const std::string& checkpoint_id) override;
  absl::StatusOr<std::string> Best(const v1::Job& job) override;
  absl::Status MarkDamaged(const std::string& name, const std::string& damage) override;
  absl::Status CheckRoom(const v1::Job& job) override;

  // NOT_FOUND. Without `files`.
  absl::StatusOr<Numbered<v1::Checkpoint>> Get(const std::string& name);

  // Of `jobs/{job}`, or of all jobs when that is empty; newest first; only those before
  // `before_number`, unless it is 0.
  absl::StatusOr<std::vector<Numbered<v1::Checkpoint>>> List(const std::string& job,
                                                             int64_t before_number, int64_t limit);

  // Its files, the manifest first. DATA_LOSS when it is not valid any more.
  absl::StatusOr<std::vector<v1::CheckpointFile>> Files(const std::string& name);

  // ABORTED with the reason ETAG_MISMATCH when `etag` is neither empty nor the checkpoint's.
  absl::StatusOr<v1::Checkpoint> SetPinned(const RequestKey& key, const std::string& name,
                                           bool pinned, const std::string& etag);

  // FAILED_PRECONDITION with the reason CHECKPOINT_PINNED, or CHECKPOINT_NEEDED when a job that has
  // not ended goes on from it.
  absl::Status Delete(const RequestKey& key, const std::string& name, bool validate_only);

  // Reads every byte. What is found is remembered: a damaged one is passed over from then on.
  absl::StatusOr<v1::VerifyCheckpointResponse> Verify(const std::string& name);

  // One of its files.
  absl::StatusOr<std::unique_ptr<ReadableFile>> OpenFile(const std::string& name,
                                                         const std::string& path);

 private:
  using Rows = std::vector<Numbered<v1::Checkpoint>>;

  explicit CheckpointCatalog(const Parts& parts) : parts_(parts) {}

  absl::Status Reconcile();
  absl::Status AdoptFolders(const std::string& job);
  absl::Status ForgetRow(const v1::Checkpoint& row);
  std::string FolderOf(const std::string& job) const;

  absl::StatusOr<Rows> RowsOf(const std::string& job);
  absl::StatusOr<std::set<std::string>> NeededByForks();
  absl::Status CheckRemovable(const v1::Checkpoint& row);
  absl::Status Retain(const JobRecord& record);
  std::string RemovedFolderOf(const v1::Checkpoint& row) const;
  // Takes the folder from its name; OK when it is gone already.
  absl::Status MoveAway(const v1::Checkpoint& row);
  // Gives it back when the row could not be removed.
  void MoveBack(const v1::Checkpoint& row);
  void RemoveLater(const v1::Checkpoint& row);

  const Parts parts_;
  Mutex remove_mutex_;  // one removal at a time moves folders
  Executor remover_{1};
};

}  // namespace megatrain

#endif  // SERVER_CHECKPOINTS_CHECKPOINT_CATALOG_H_
