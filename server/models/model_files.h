#ifndef SERVER_MODELS_MODEL_FILES_H_
#define SERVER_MODELS_MODEL_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/file_system.h"
#include "runtime/model_io/check_model.h"
#include "server/files/folder_copy.h"
#include "server/models/allowed_paths.h"

namespace megatrain {

// What belongs to a model in a Hugging Face folder: weights as safetensors, configurations, the
// tokenizer, chat templates and licences. Code and weights in formats that can run code stay out.
absl::StatusOr<std::vector<NamedFile>> FindModelFiles(FileSystem& disk, const std::string& folder);

// Replaces each file's path by where its links lead. PERMISSION_DENIED when that is outside.
absl::Status ResolveLinks(const AllowedPaths& allowed, std::vector<NamedFile>& files);

// The sum of the files' sizes.
absl::StatusOr<int64_t> TotalBytes(FileSystem& disk, const std::vector<NamedFile>& files);

// Checks a folder as CheckModelFolder does, and that it has a tokenizer. Errors have the reason
// MODEL_NOT_USABLE and name the folder.
absl::StatusOr<ModelSummary> CheckModel(FileSystem& disk, const std::string& folder);

// RESOURCE_EXHAUSTED with the reason DISK_FULL when the disk of `folder` has no room.
absl::Status CheckRoom(FileSystem& disk, const std::string& folder, int64_t size_bytes);

}  // namespace megatrain

#endif  // SERVER_MODELS_MODEL_FILES_H_
