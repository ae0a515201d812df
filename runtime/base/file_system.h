// The seam to the disk: what must be durable, or must survive a full disk, goes through here.

#ifndef RUNTIME_BASE_FILE_SYSTEM_H_
#define RUNTIME_BASE_FILE_SYSTEM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace megatrain {

// A file that grows at its end. Not thread-safe. Errors name the path and the system's reason:
// RESOURCE_EXHAUSTED for a full disk or quota, else what errno maps to.
class WritableFile {
 public:
  virtual ~WritableFile() = default;  // closes; what was not synced may be lost

  virtual absl::Status Append(std::string_view data) = 0;

  // Returns when everything appended is on the disk.
  virtual absl::Status Sync() = 0;

  virtual absl::Status Close() = 0;
};

// Thread-safe. NOT_FOUND for an absent path, RESOURCE_EXHAUSTED for a full disk.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // Creates or truncates (`append` keeps what is there).
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> OpenForWriting(const std::string& path,
                                                                       bool append) = 0;

  // RESOURCE_EXHAUSTED when the file is longer than `limit_bytes`.
  virtual absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t limit_bytes) = 0;

  virtual absl::StatusOr<int64_t> FileSize(const std::string& path) = 0;
  virtual bool Exists(const std::string& path) = 0;

  // Names in a folder, sorted, without "." and "..".
  virtual absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& path) = 0;

  // With parents; OK when it exists.
  virtual absl::Status MakeFolders(const std::string& path) = 0;

  // Atomic on one disk; replaces a file, not a folder that holds something.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;

  // Gives the file a second name on the same disk, without a copy. ALREADY_EXISTS for a taken one.
  virtual absl::Status Link(const std::string& from, const std::string& to) = 0;

  // Cuts the file to `size_bytes`, or extends it with zeros.
  virtual absl::Status Truncate(const std::string& path, int64_t size_bytes) = 0;

  // Makes names in the folder durable: after creating, renaming or removing in it.
  virtual absl::Status SyncFolder(const std::string& path) = 0;

  // A file or a whole tree; OK when it does not exist. Follows no links.
  virtual absl::Status RemoveTree(const std::string& path) = 0;

  // That an unprivileged writer can still take on the disk of `path`.
  virtual absl::StatusOr<int64_t> AvailableBytes(const std::string& path) = 0;
};

}  // namespace megatrain

#endif  // RUNTIME_BASE_FILE_SYSTEM_H_
