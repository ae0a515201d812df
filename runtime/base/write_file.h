#ifndef RUNTIME_BASE_WRITE_FILE_H_
#define RUNTIME_BASE_WRITE_FILE_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "runtime/base/file_system.h"

namespace megatrain {

// The folder of a file, by its full name.
std::string FolderOfFile(const std::string& path);

// Writes a file, which may be there, and syncs it; its name is durable once its folder is synced.
// After an error there may be a part of it.
absl::Status WriteFileDurably(FileSystem& files, const std::string& path, std::string_view content);

// The same by way of `path`.partial, so that a reader, and who comes after a crash, finds the file
// as it was or as it is to be. Syncs the folder, which exists.
absl::Status ReplaceFile(FileSystem& files, const std::string& path, std::string_view content);

}  // namespace megatrain

#endif  // RUNTIME_BASE_WRITE_FILE_H_
