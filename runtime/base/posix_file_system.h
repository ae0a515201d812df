#ifndef RUNTIME_BASE_POSIX_FILE_SYSTEM_H_
#define RUNTIME_BASE_POSIX_FILE_SYSTEM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/file_system.h"

namespace megatrain {

// The machine's disks. Files are opened close-on-exec and made with mode 0640, folders with 0750,
// both less the process's umask; folders are durable once they are made. Thread-safe: holds no
// state.
class PosixFileSystem final : public FileSystem {
 public:
  absl::StatusOr<std::unique_ptr<WritableFile>> OpenForWriting(const std::string& path,
                                                               bool append) override;
  absl::StatusOr<std::unique_ptr<BlockFile>> OpenForBlocks(const std::string& path,
                                                           int64_t size_bytes) override;
  absl::StatusOr<std::unique_ptr<ReadableFile>> OpenForReading(const std::string& path) override;
  absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t limit_bytes) override;
  absl::StatusOr<int64_t> FileSize(const std::string& path) override;
  bool Exists(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& path) override;
  absl::Status MakeFolders(const std::string& path) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Link(const std::string& from, const std::string& to) override;
  absl::Status Truncate(const std::string& path, int64_t size_bytes) override;
  absl::Status SyncFolder(const std::string& path) override;
  absl::Status RemoveTree(const std::string& path) override;
  absl::StatusOr<int64_t> AvailableBytes(const std::string& path) override;
};

}  // namespace megatrain

#endif  // RUNTIME_BASE_POSIX_FILE_SYSTEM_H_
