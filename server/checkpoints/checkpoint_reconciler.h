#ifndef SERVER_CHECKPOINTS_CHECKPOINT_RECONCILER_H_
#define SERVER_CHECKPOINTS_CHECKPOINT_RECONCILER_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "server/checkpoints/checkpoint_parts.h"
#include "server/checkpoints/checkpoint_rows.h"
#include "server/jobs/job_record.h"

namespace megatrain {

// Makes rows of checkpoints agree with the folders on the disk, which is the truth about them.
// Thread-safe.
class CheckpointReconciler {
 public:
  explicit CheckpointReconciler(const CheckpointParts& parts) : parts_(parts) {}

  // CheckpointCatalog::Open, but for retention: gives the jobs that have a folder.
  absl::StatusOr<std::vector<JobRecord>> ReconcileAll();

  // Folders of the job without a row get one; gives those that are no checkpoints.
  absl::StatusOr<std::vector<CheckpointListing::Invalid>> Adopt(const std::string& job);

  // The same for a job that does not run: first, what a dead save was about to replace is back.
  absl::StatusOr<std::vector<CheckpointListing::Invalid>> RestoreAndAdopt(const std::string& job);

  // Reports that the job's folders and rows could not be made to agree.
  void ReportLeft(const std::string& job, const absl::Status& why) const;

  std::string FolderOf(const std::string& job) const;

 private:
  absl::Status CheckDisk(const CheckpointRows& rows);
  absl::Status ReconcileFolder(const std::string& job);
  absl::Status ForgetInvalid();

  const CheckpointParts parts_;
};

}  // namespace megatrain

#endif  // SERVER_CHECKPOINTS_CHECKPOINT_RECONCILER_H_
