#include "server/checkpoints/checkpoint_folders.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/manifest.h"
#include "server/resources/timestamp.h"

namespace megatrain {
namespace {

constexpr int64_t kMaxManifestBytes = int64_t{64} << 20;

std::string ParentOf(const std::string& path) { return path.substr(0, path.rfind('/')); }

std::string RemovedFolderOf(const v1::Checkpoint& row) {
  return absl::StrCat(ParentOf(row.path()), "/", std::string(kTemporaryPrefix), "removed-",
                      row.uid());
}

}  // namespace

bool IsInvalidCheckpoint(const absl::Status& status) {
  return absl::IsNotFound(status) || absl::IsDataLoss(status) || absl::IsInvalidArgument(status);
}

// A folder whose manifest is damaged is the row's: a new one would have a valid one.
absl::StatusOr<bool> CheckpointFolders::Holds(const std::string& folder,
                                              const v1::Checkpoint& row) {
  if (!disk_.Exists(folder)) {
    return false;
  }
  const absl::StatusOr<std::string> text =
      disk_.ReadFile(absl::StrCat(folder, "/", kManifestName), kMaxManifestBytes);
  if (absl::IsNotFound(text.status())) {
    return true;
  }
  MT_RETURN_IF_ERROR(text.status());
  const absl::StatusOr<CheckpointManifest> manifest = ParseCheckpointManifest(*text);
  return !manifest.ok() || manifest->create_time == TimeOf(row.create_time());
}

absl::Status CheckpointFolders::MoveAway(const v1::Checkpoint& row) {
  MT_ASSIGN_OR_RETURN(const bool is_there, Holds(row.path(), row));
  if (!is_there) {
    return absl::OkStatus();
  }
  const std::string removed = RemovedFolderOf(row);
  MT_RETURN_IF_ERROR(disk_.Rename(row.path(), removed));
  // The engine may have replaced it between the look and the move.
  if (const absl::StatusOr<bool> moved = Holds(removed, row); moved.ok() && !*moved) {
    MT_RETURN_IF_ERROR(disk_.Rename(removed, row.path()));
  }
  return disk_.SyncFolder(ParentOf(row.path()));
}

void CheckpointFolders::MoveBack(const v1::Checkpoint& row) {
  if (!disk_.Exists(RemovedFolderOf(row))) {
    return;
  }
  absl::Status status = disk_.Rename(RemovedFolderOf(row), row.path());
  status.Update(disk_.SyncFolder(ParentOf(row.path())));
  if (!status.ok()) {
    report_(absl::StrCat(row.name(), " has no folder any more: ", std::string(status.message())));
  }
}

void CheckpointFolders::RemoveLater(const v1::Checkpoint& row) {
  remover_.Run([this, path = RemovedFolderOf(row)] {
    if (const absl::Status status = disk_.RemoveTree(path); !status.ok()) {
      report_(absl::StrCat(path, " stays until the next start: ", std::string(status.message())));
    }
  });
}

}  // namespace megatrain
