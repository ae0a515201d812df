#ifndef RUNTIME_DATA_SHARD_FILE_H_
#define RUNTIME_DATA_SHARD_FILE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace megatrain {

// A file that is only read, at any place. Thread-safe. Errors name the path.
class ShardFile {
 public:
  // NOT_FOUND, PERMISSION_DENIED or what errno maps to; INVALID_ARGUMENT for what is no file.
  static absl::StatusOr<ShardFile> Open(const std::string& path);

  ShardFile(ShardFile&& other) noexcept;
  ShardFile& operator=(ShardFile&&) = delete;
  ~ShardFile();

  const std::string& path() const { return path_; }
  int64_t size_bytes() const { return size_bytes_; }

  // Fills all of `bytes` from `offset_bytes`. DATA_LOSS when the file has become shorter.
  absl::Status ReadAt(int64_t offset_bytes, std::span<std::byte> bytes) const;

  // Calls `consume` with each piece of at most 1 MiB in order, and stops at its first error. A
  // piece starts at a multiple of 1 MiB, so that no item of 2, 4 or 8 bytes is cut.
  absl::Status ForEachPiece(
      const std::function<absl::Status(std::span<const std::byte>)>& consume) const;

 private:
  ShardFile(std::string path, int descriptor, int64_t size_bytes);

  std::string path_;
  int descriptor_;
  int64_t size_bytes_;
};

}  // namespace megatrain

#endif  // RUNTIME_DATA_SHARD_FILE_H_
