// A job's folder of checkpoints: step-00000120/ and so on, each with a manifest and the files that
// it names. What is called otherwise, such as tmp-..., and a folder without a valid manifest is no
// checkpoint.

#ifndef RUNTIME_CHECKPOINT_CHECKPOINT_FOLDER_H_
#define RUNTIME_CHECKPOINT_CHECKPOINT_FOLDER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/file_system.h"
#include "runtime/checkpoint/manifest.h"

namespace megatrain {

// Names of folders that a save is at work in, or that a dead one left, begin so.
inline constexpr std::string_view kTemporaryPrefix = "tmp-";

// What one was called before, until the one that replaces it has its name.
inline constexpr std::string_view kReplacedPrefix = "tmp-replaced-";

// `step-00000120`: at least eight digits.
std::string CheckpointId(int64_t step);

// The step of such a name; absent for any other.
std::optional<int64_t> StepOfCheckpointId(std::string_view id);

// A checkpoint whose manifest is valid and whose files are there with their sizes. Their contents
// are not looked at: VerifyCheckpoint and LoadCheckpoint do that.
struct Checkpoint {
  std::string id;
  std::string path;
  CheckpointManifest manifest;
  int64_t manifest_bytes = 0;

  int64_t SizeBytes() const { return manifest.SizeBytes() + manifest_bytes; }
};

// Opens one folder. NOT_FOUND when there is none, or none with a manifest; DATA_LOSS names the file
// that is absent, of a wrong size, unknown or damaged; else as ParseCheckpointManifest.
absl::StatusOr<Checkpoint> OpenCheckpoint(const std::string& path, FileSystem& files);

// What lies in a job's folder, by step.
struct CheckpointListing {
  std::vector<Checkpoint> valid;
  struct Invalid {
    std::string id;
    absl::Status reason;
  };
  std::vector<Invalid> invalid;
};

// NOT_FOUND when there is no such folder.
absl::StatusOr<CheckpointListing> ListCheckpoints(const std::string& folder, FileSystem& files);

// Gives checkpoints that were being replaced when a save died their names back, where the new ones
// did not get them. While nobody saves there. NOT_FOUND when there is no such folder.
absl::Status RestoreReplacedCheckpoints(const std::string& folder, FileSystem& files);

// The same, and removes what dead saves left.
absl::Status CleanCheckpointFolder(const std::string& folder, FileSystem& files);

}  // namespace megatrain

#endif  // RUNTIME_CHECKPOINT_CHECKPOINT_FOLDER_H_
