#ifndef SERVER_CHECKPOINTS_CHECKPOINT_REMOVER_H_
#define SERVER_CHECKPOINTS_CHECKPOINT_REMOVER_H_

#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "megatrain/v1/checkpoint.pb.h"
#include "runtime/base/mutex.h"
#include "server/checkpoints/checkpoint_folders.h"
#include "server/checkpoints/checkpoint_parts.h"
#include "server/checkpoints/checkpoint_uses.h"
#include "server/database/request_key.h"
#include "server/jobs/job_record.h"

namespace megatrain {

// Removes checkpoints: those that a job's retention does not keep, and those that a client deletes.
// None goes while it is used, or is pinned, or a job goes on from it. A folder leaves its name
// before its row goes, and its bytes after. Thread-safe.
class CheckpointRemover {
 public:
  explicit CheckpointRemover(const CheckpointParts& parts)
      : parts_(parts), uses_(parts.clock), folders_(parts.disk, parts_.report) {}

  // What retention does not keep goes. What fails is reported, and done after a later commit.
  void Retain(const JobRecord& record);

  // CheckpointCatalog's of the same names.
  absl::Status Delete(const RequestKey& key, const std::string& name, bool validate_only);
  absl::StatusOr<CheckpointInUse> Use(const std::string& name);
  absl::StatusOr<v1::Checkpoint> SetPinned(const RequestKey& key, const std::string& name,
                                           bool pinned, const std::string& etag);

  // CheckpointUses::NoteReader.
  void NoteReader(const v1::Checkpoint& checkpoint) { uses_.NoteReader(checkpoint); }

 private:
  absl::Status TryRetain(const JobRecord& record);
  absl::Status RemoveOld(const v1::Checkpoint& row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckRemovable(const v1::Checkpoint& row);
  absl::StatusOr<std::set<std::string>> NeededByForks();

  const CheckpointParts parts_;
  // Held from the look whether a checkpoint may go until it is gone, and while a use begins.
  Mutex mutex_;
  CheckpointUses uses_;
  CheckpointFolders folders_;
};

}  // namespace megatrain

#endif  // SERVER_CHECKPOINTS_CHECKPOINT_REMOVER_H_
