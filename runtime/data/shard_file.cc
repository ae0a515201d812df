#include "runtime/data/shard_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

constexpr int64_t kPieceBytes = 1 << 20;

absl::Status ErrnoError(const std::string& path, const char* action) {
  return absl::ErrnoToStatus(errno, path + ": cannot " + action);
}

}  // namespace

absl::StatusOr<ShardFile> ShardFile::Open(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    return ErrnoError(path, "open it");
  }
  ShardFile file(path, descriptor, 0);
  struct stat status;
  if (fstat(descriptor, &status) != 0) {
    return ErrnoError(path, "see its size");
  }
  if (!S_ISREG(status.st_mode)) {
    return absl::InvalidArgumentError(path + ": is no regular file");
  }
  file.size_bytes_ = status.st_size;
  return file;
}

ShardFile::ShardFile(std::string path, int descriptor, int64_t size_bytes)
    : path_(std::move(path)), descriptor_(descriptor), size_bytes_(size_bytes) {}

ShardFile::ShardFile(ShardFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_bytes_(other.size_bytes_) {}

ShardFile::~ShardFile() {
  if (descriptor_ >= 0) {
    close(descriptor_);
  }
}

absl::Status ShardFile::ReadAt(int64_t offset_bytes, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count = pread(descriptor_, bytes.data(), bytes.size(), offset_bytes);
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      return ErrnoError(path_, "read it");
    }
    if (count == 0) {
      return absl::DataLossError(path_ + ": has become shorter since it was opened");
    }
    offset_bytes += count;
    bytes = bytes.subspan(count);
  }
  return absl::OkStatus();
}

absl::Status ShardFile::ForEachPiece(
    const std::function<absl::Status(std::span<const std::byte>)>& consume) const {
  std::vector<std::byte> buffer(std::min(size_bytes_, kPieceBytes));
  for (int64_t offset = 0; offset < size_bytes_; offset += kPieceBytes) {
    const std::span<std::byte> piece =
        std::span(buffer).first(std::min(size_bytes_ - offset, kPieceBytes));
    MT_RETURN_IF_ERROR(ReadAt(offset, piece));
    MT_RETURN_IF_ERROR(consume(piece));
  }
  return absl::OkStatus();
}

}  // namespace megatrain
