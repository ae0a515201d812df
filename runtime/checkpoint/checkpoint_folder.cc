#include "runtime/checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

constexpr std::string_view kIdPrefix = "step-";
constexpr int64_t kManifestLimitBytes = int64_t{64} << 20;

absl::Status CheckFile(const std::string& folder, const CheckpointFile& file, FileSystem& files) {
  const std::string path = absl::StrCat(folder, "/", file.name);
  const absl::StatusOr<int64_t> size = files.FileSize(path);
  if (absl::IsNotFound(size.status())) {
    return absl::DataLossError(absl::StrCat(path, ": is absent"));
  }
  MT_RETURN_IF_ERROR(size.status());
  if (*size != file.size_bytes) {
    return absl::DataLossError(
        absl::StrCat(path, ": has ", *size, " bytes but the manifest says ", file.size_bytes));
  }
  return absl::OkStatus();
}

absl::Status CheckNames(const std::string& folder, const CheckpointManifest& manifest,
                        FileSystem& files) {
  MT_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.ListFolder(folder));
  for (const std::string& name : names) {
    const bool known = name == kManifestName ||
                       std::any_of(manifest.files.begin(), manifest.files.end(),
                                   [&](const CheckpointFile& file) { return file.name == name; });
    if (!known) {
      return absl::DataLossError(absl::StrCat(folder, "/", name, ": is not named in the manifest"));
    }
  }
  return absl::OkStatus();
}

std::string FileName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

std::string CheckpointId(int64_t step) { return absl::StrFormat("step-%08d", step); }

std::optional<int64_t> StepOfCheckpointId(std::string_view id) {
  int64_t step = 0;
  const std::string digits(id.substr(std::min(id.size(), kIdPrefix.size())));
  const bool is_id = id.starts_with(kIdPrefix) && absl::SimpleAtoi(digits, &step) && step >= 0;
  return is_id && CheckpointId(step) == id ? std::optional<int64_t>(step) : std::nullopt;
}

absl::StatusOr<Checkpoint> OpenCheckpoint(const std::string& path, FileSystem& files) {
  const std::string manifest_path = absl::StrCat(path, "/", kManifestName);
  MT_ASSIGN_OR_RETURN(const std::string text, files.ReadFile(manifest_path, kManifestLimitBytes));
  absl::StatusOr<CheckpointManifest> manifest = ParseCheckpointManifest(text);
  if (!manifest.ok()) {
    return absl::Status(
        manifest.status().code(),
        absl::StrCat(manifest_path, ": ", std::string(manifest.status().message())));
  }
  Checkpoint checkpoint{.id = FileName(path),
                        .path = path,
                        .manifest = *std::move(manifest),
                        .manifest_bytes = static_cast<int64_t>(text.size())};
  if (StepOfCheckpointId(checkpoint.id) != checkpoint.manifest.progress.step) {
    return absl::DataLossError(absl::StrCat(manifest_path, ": is of step ",
                                            checkpoint.manifest.progress.step,
                                            ", which the folder's name is not"));
  }
  for (const CheckpointFile& file : checkpoint.manifest.files) {
    MT_RETURN_IF_ERROR(CheckFile(path, file, files));
  }
  MT_RETURN_IF_ERROR(CheckNames(path, checkpoint.manifest, files));
  return checkpoint;
}

absl::StatusOr<CheckpointListing> ListCheckpoints(const std::string& folder, FileSystem& files) {
  MT_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.ListFolder(folder));
  CheckpointListing listing;
  for (const std::string& name : names) {
    if (!StepOfCheckpointId(name)) {
      continue;
    }
    absl::StatusOr<Checkpoint> checkpoint = OpenCheckpoint(absl::StrCat(folder, "/", name), files);
    if (checkpoint.ok()) {
      listing.valid.push_back(*std::move(checkpoint));
    } else {
      listing.invalid.push_back({name, checkpoint.status()});
    }
  }
  // Names have a digit more from step 10^8 on.
  std::sort(listing.valid.begin(), listing.valid.end(), [](const auto& a, const auto& b) {
    return a.manifest.progress.step < b.manifest.progress.step;
  });
  return listing;
}

absl::Status RestoreReplacedCheckpoints(const std::string& folder, FileSystem& files) {
  MT_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.ListFolder(folder));
  for (const std::string& name : names) {
    if (!name.starts_with(kReplacedPrefix)) {
      continue;
    }
    const std::string path = absl::StrCat(folder, "/", name.substr(kReplacedPrefix.size()));
    if (!files.Exists(path)) {
      MT_RETURN_IF_ERROR(files.Rename(absl::StrCat(folder, "/", name), path));
      MT_RETURN_IF_ERROR(files.SyncFolder(folder));
    }
  }
  return absl::OkStatus();
}

absl::Status CleanCheckpointFolder(const std::string& folder, FileSystem& files) {
  MT_RETURN_IF_ERROR(RestoreReplacedCheckpoints(folder, files));
  MT_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.ListFolder(folder));
  for (const std::string& name : names) {
    if (name.starts_with(kTemporaryPrefix)) {
      MT_RETURN_IF_ERROR(files.RemoveTree(absl::StrCat(folder, "/", name)));
    }
  }
  return files.SyncFolder(folder);
}

}  // namespace megatrain
