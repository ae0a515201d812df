// The checkpoints that the server knows: a row in the database and a folder on disk each.

#ifndef SERVER_CHECKPOINTS_CHECKPOINT_CATALOG_H_
#define SERVER_CHECKPOINTS_CHECKPOINT_CATALOG_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "megatrain/v1/checkpoint.pb.h"
#include "megatrain/v1/checkpoint_service.pb.h"
#include "runtime/base/byte_progress.h"
#include "runtime/base/file_system.h"
#include "server/checkpoints/checkpoint_parts.h"
#include "server/checkpoints/checkpoint_reconciler.h"
#include "server/checkpoints/checkpoint_remover.h"
#include "server/checkpoints/checkpoint_uses.h"
#include "server/database/request_key.h"
#include "server/jobs/job_checkpoints.h"
#include "server/resources/resource_table.h"

namespace megatrain {

// FAILED_PRECONDITION with the reason CHECKPOINT_DAMAGED.
absl::Status CheckpointDamaged(const std::string& name, const std::string& damage);

// The engine makes the folders; the disk is the truth about them, the rows about what is wished.
// Thread-safe; calls block on the disk.
class CheckpointCatalog final : public JobCheckpoints {
 public:
  using Parts = CheckpointParts;

  // Takes in valid folders without a row, forgets rows without a valid folder, and removes what
  // saves and removals left, and what retention does not keep. Before any engine runs. What the
  // disk does not give is reported and stays as it is: it is one job's affair. FAILED_PRECONDITION
  // when no folder of any row is there, as if their disk were not mounted: nothing is forgotten
  // then.
  static absl::StatusOr<std::unique_ptr<CheckpointCatalog>> Open(const Parts& parts);

  absl::StatusOr<std::string> Folder(const v1::Job& job) override;
  absl::StatusOr<JobStart> StartOf(const JobRecord& record) override;
  absl::StatusOr<std::vector<v1::JobEvent>> Figures(const v1::Checkpoint& checkpoint) override;
  absl::StatusOr<v1::Checkpoint> Commit(const JobRecord& record,
                                        const std::string& checkpoint_id) override;
  void Settle(const JobRecord& record) override;
  absl::StatusOr<std::string> Best(const v1::Job& job) override;
  absl::Status MarkDamaged(const v1::Checkpoint& checkpoint, const std::string& damage) override;
  absl::Status CheckRoom(const v1::Job& job) override;

  // Sets which of each job's checkpoints are there by now: the last that is whole, and the best.
  absl::Status Describe(const std::vector<v1::Job*>& jobs);

  // What a job that goes on from the checkpoint with everything has to keep. DATA_LOSS when it is
  // not valid any more.
  absl::StatusOr<TrainingOrder> OrderOf(const v1::Checkpoint& checkpoint);

  // NOT_FOUND. Without `files`.
  absl::StatusOr<Numbered<v1::Checkpoint>> Get(const std::string& name);

  // The same, and nothing removes it as long as the result lives, which this outlives.
  absl::StatusOr<CheckpointInUse> Use(const std::string& name);

  // The same of one to go on from: CheckpointDamaged when it is.
  absl::StatusOr<CheckpointInUse> UseUndamaged(const std::string& name);

  // Of `jobs/{job}`, or of all jobs when that is empty; newest first; only those before
  // `before_number`, unless it is 0.
  absl::StatusOr<std::vector<Numbered<v1::Checkpoint>>> List(const std::string& job,
                                                             int64_t before_number, int64_t limit);

  // The highest number of any of the job's, which does not run, also of one that the engine
  // committed and told nobody of; 0 without any.
  absl::StatusOr<int64_t> LastNumber(const std::string& job);

  // Its files, the manifest first. DATA_LOSS when it is not valid any more.
  absl::StatusOr<std::vector<v1::CheckpointFile>> Files(const std::string& name);

  // ABORTED with the reason ETAG_MISMATCH when `etag` is neither empty nor the checkpoint's.
  absl::StatusOr<v1::Checkpoint> SetPinned(const RequestKey& key, const std::string& name,
                                           bool pinned, const std::string& etag);

  // FAILED_PRECONDITION with the reason CHECKPOINT_PINNED, CHECKPOINT_NEEDED when a job that has
  // not ended goes on from it, or CHECKPOINT_IN_USE while somebody reads it.
  absl::Status Delete(const RequestKey& key, const std::string& name, bool validate_only);

  // Reads every byte. What is found is remembered: a damaged one is passed over from then on. An
  // error of `progress` ends it.
  absl::StatusOr<v1::VerifyCheckpointResponse> Verify(const std::string& name,
                                                      const ByteProgress& progress = nullptr);

  // One of its files.
  struct OpenedFile {
    CheckpointInUse checkpoint;
    std::unique_ptr<ReadableFile> file;
  };
  absl::StatusOr<OpenedFile> OpenFile(const std::string& name, const std::string& path);

 private:
  explicit CheckpointCatalog(const Parts& parts)
      : parts_(parts), reconciler_(parts), remover_(parts) {}

  const Parts parts_;
  CheckpointReconciler reconciler_;
  CheckpointRemover remover_;
};

}  // namespace megatrain

#endif  // SERVER_CHECKPOINTS_CHECKPOINT_CATALOG_H_
