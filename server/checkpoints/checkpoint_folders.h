#ifndef SERVER_CHECKPOINTS_CHECKPOINT_FOLDERS_H_
#define SERVER_CHECKPOINTS_CHECKPOINT_FOLDERS_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "megatrain/v1/checkpoint.pb.h"
#include "runtime/base/file_system.h"
#include "server/executor/executor.h"

namespace megatrain {

// Folders of checkpoints leave their names, and later the disk. The engine may meanwhile give a
// name to another checkpoint: only the folder that a row is of is touched. Thread-safe for
// different rows.
class CheckpointFolders {
 public:
  // `report` hears what an operator should read. Both outlive this.
  CheckpointFolders(FileSystem& disk, const std::function<void(const std::string&)>& report)
      : disk_(disk), report_(report) {}

  // Takes the row's folder from its name; OK when it is gone, or the name is another one's.
  absl::Status MoveAway(const v1::Checkpoint& row);

  // Gives it back, when the row could not be removed.
  void MoveBack(const v1::Checkpoint& row);

  // Removes in the background what MoveAway moved. The destructor waits for it.
  void RemoveLater(const v1::Checkpoint& row);

 private:
  absl::StatusOr<bool> Holds(const std::string& folder, const v1::Checkpoint& row);

  FileSystem& disk_;
  const std::function<void(const std::string&)>& report_;
  Executor remover_{1};
};

// Faults of a checkpoint itself; others are the disk's own, or, UNIMPLEMENTED, a newer version's
// format.
bool IsInvalidCheckpoint(const absl::Status& status);

}  // namespace megatrain

#endif  // SERVER_CHECKPOINTS_CHECKPOINT_FOLDERS_H_
