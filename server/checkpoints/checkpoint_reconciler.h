#ifndef SERVER_CHECKPOINTS_CHECKPOINT_RECONCILER_H_
#define SERVER_CHECKPOINTS_CHECKPOINT_RECONCILER_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/file_system.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "server/checkpoints/checkpoint_rows.h"
#include "server/database/database.h"
#include "server/jobs/job_record.h"
#include "server/jobs/job_store.h"

namespace megatrain {

// Makes rows of checkpoints agree with the folders on the disk, which is the truth about them.
// Thread-safe.
class CheckpointReconciler {
 public:
  // All outlive it.
  struct Parts {
    Database& database;
    FileSystem& disk;
    JobStore& jobs;
    std::string jobs_folder;                         // of `{job}/checkpoints`
    std::function<void(const std::string&)> report;  // what an operator should read
  };

  explicit CheckpointReconciler(const Parts& parts) : parts_(parts) {}

  // CheckpointCatalog::Open, but for retention: gives the jobs that have a folder.
  absl::StatusOr<std::vector<JobRecord>> ReconcileAll();

  // Folders of the job without a row get one; gives those that are no checkpoints.
  absl::StatusOr<std::vector<CheckpointListing::Invalid>> Adopt(const std::string& job);

  // The same for a job that does not run: first, what a dead save was about to replace is back.
  absl::StatusOr<std::vector<CheckpointListing::Invalid>> RestoreAndAdopt(const std::string& job);

  std::string FolderOf(const std::string& job) const;

 private:
  absl::Status CheckDisk(const CheckpointRows& rows);
  absl::Status ReconcileFolder(const std::string& job);
  absl::Status ForgetInvalid();

  const Parts parts_;
};

}  // namespace megatrain

#endif  // SERVER_CHECKPOINTS_CHECKPOINT_RECONCILER_H_
