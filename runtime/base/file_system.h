// The seam to the disk: what must be durable, or must survive a full disk, goes through here.

#ifndef RUNTIME_BASE_FILE_SYSTEM_H_
#define RUNTIME_BASE_FILE_SYSTEM_H_

#include <cstdint>
#include <memory>
#include <span>
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

// Of memory, offsets and sizes that a disk takes without the page cache's help.
inline constexpr int64_t kDiskBlockBytes = 4096;

// A file of a size that is known before, for much data: several threads write it at once, each its
// own ranges, and nothing of it stays in the page cache. Thread-safe. Errors as WritableFile's.
class BlockFile {
 public:
  virtual ~BlockFile() = default;  // closes; what was not synced may be lost

  // Fastest when address, offset and size are multiples of kDiskBlockBytes.
  virtual absl::Status WriteAt(int64_t offset_bytes, std::span<const char> data) = 0;

  // Whether writes go to the disk past the page cache; some file systems cannot do that, and what
  // is written there is pushed out of the cache at once.
  virtual bool direct() const = 0;

  // Returns when everything written is on the disk.
  virtual absl::Status Sync() = 0;
};

// A regular file that is read at any place, past the page cache where the file system can do that.
// Thread-safe.
class ReadableFile {
 public:
  virtual ~ReadableFile() = default;

  // When it was opened.
  virtual int64_t size_bytes() const = 0;

  // Fills `buffer` from `offset_bytes` on; fastest as BlockFile::WriteAt. DATA_LOSS when the file
  // ends before.
  virtual absl::Status ReadAt(int64_t offset_bytes, std::span<char> buffer) const = 0;
};

// Thread-safe. NOT_FOUND for an absent path, RESOURCE_EXHAUSTED for a full disk.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // Creates or truncates (`append` keeps what is there).
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> OpenForWriting(const std::string& path,
                                                                       bool append) = 0;

  // Creates or truncates, and takes `size_bytes` of the disk at once where the file system can:
  // RESOURCE_EXHAUSTED when it has not that much.
  virtual absl::StatusOr<std::unique_ptr<BlockFile>> OpenForBlocks(const std::string& path,
                                                                   int64_t size_bytes) = 0;

  // INVALID_ARGUMENT for what is no regular file.
  virtual absl::StatusOr<std::unique_ptr<ReadableFile>> OpenForReading(const std::string& path) = 0;

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
