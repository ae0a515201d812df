#include "runtime/base/posix_block_files.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/posix_path_error.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

// An open file that leaves O_DIRECT for good at the first call that does not suit it, such as an
// offset that is no multiple of the disk's block. -1 when opening failed, errno tells why.
class DirectFile {
 public:
  DirectFile(const std::string& path, int flags)
      : file_(::open(path.c_str(), flags | O_CLOEXEC, 0640)), direct_((flags & O_DIRECT) != 0) {}

  int get() const { return file_.get(); }
  bool direct() const { return direct_; }

  // Whether a call that has just failed is worth a second try: O_DIRECT was the reason, and is off
  // now. `left` is of that call, false at first.
  bool LeaveDirect(bool& left) {
    if (errno != EINVAL || left) {
      return false;
    }
    left = true;
    direct_ = false;
    const int flags = ::fcntl(file_.get(), F_GETFL);
    return flags >= 0 && ::fcntl(file_.get(), F_SETFL, flags & ~O_DIRECT) == 0;
  }

 private:
  const FileDescriptor file_;
  std::atomic<bool> direct_;
};

std::unique_ptr<DirectFile> Open(const std::string& path, int flags) {
  auto file = std::make_unique<DirectFile>(path, flags | O_DIRECT);
  return file->get() < 0 && errno == EINVAL ? std::make_unique<DirectFile>(path, flags)
                                            : std::move(file);
}

// Takes the disk's room now, so that a full disk shows before anything is written.
absl::Status Reserve(const std::string& path, int fd, int64_t size_bytes) {
  if (size_bytes == 0 || ::fallocate(fd, 0, 0, size_bytes) == 0) {
    return absl::OkStatus();
  }
  if (errno != EOPNOTSUPP && errno != ENOSYS) {
    return PathError("take room for", path, errno);
  }
  return ::ftruncate(fd, size_bytes) == 0 ? absl::OkStatus()
                                          : PathError("set the size of", path, errno);
}

class PosixBlockFile final : public BlockFile {
 public:
  PosixBlockFile(std::string path, std::unique_ptr<DirectFile> file)
      : path_(std::move(path)), file_(std::move(file)) {}

  absl::Status WriteAt(int64_t offset_bytes, std::span<const char> data) override {
    int64_t at = offset_bytes;
    std::span<const char> rest = data;
    bool left_direct = false;
    while (!rest.empty()) {
      const ssize_t count = ::pwrite(file_->get(), rest.data(), rest.size(), at);
      if (count < 0 && (errno == EINTR || file_->LeaveDirect(left_direct))) {
        continue;
      }
      if (count < 0) {
        return PathError("write", path_, errno);
      }
      rest = rest.subspan(count);
      at += count;
    }
    return file_->direct() ? absl::OkStatus()
                           : PushOut(offset_bytes, static_cast<int64_t>(data.size()));
  }

  bool direct() const override { return file_->direct(); }

  absl::Status Sync() override {
    return ::fsync(file_->get()) == 0 ? absl::OkStatus() : PathError("sync", path_, errno);
  }

 private:
  // What was just written goes to the disk, and its pages back to the system: dirty pages never
  // pile up.
  absl::Status PushOut(int64_t offset_bytes, int64_t size_bytes) const {
    constexpr unsigned kAll =
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    if (::sync_file_range(file_->get(), offset_bytes, size_bytes, kAll) != 0 && errno != ENOSYS &&
        errno != EINVAL && errno != ESPIPE) {
      return PathError("write", path_, errno);
    }
    ::posix_fadvise(file_->get(), offset_bytes, size_bytes, POSIX_FADV_DONTNEED);  // advice only
    return absl::OkStatus();
  }

  const std::string path_;
  const std::unique_ptr<DirectFile> file_;
};

class PosixReadableFile final : public ReadableFile {
 public:
  PosixReadableFile(std::string path, std::unique_ptr<DirectFile> file, int64_t size_bytes)
      : path_(std::move(path)), file_(std::move(file)), size_bytes_(size_bytes) {}

  int64_t size_bytes() const override { return size_bytes_; }

  absl::Status ReadAt(int64_t offset_bytes, std::span<char> buffer) const override {
    int64_t at = offset_bytes;
    std::span<char> rest = buffer;
    bool left_direct = false;
    while (!rest.empty()) {
      const ssize_t count = ::pread(file_->get(), rest.data(), rest.size(), at);
      if (count < 0 && (errno == EINTR || file_->LeaveDirect(left_direct))) {
        continue;
      }
      if (count < 0) {
        return PathError("read", path_, errno);
      }
      if (count == 0) {
        return absl::DataLossError(absl::StrCat(path_, ": ends at byte ", at, ", but ",
                                                offset_bytes + static_cast<int64_t>(buffer.size()),
                                                " bytes were expected"));
      }
      rest = rest.subspan(count);
      at += count;
    }
    if (!file_->direct()) {
      ::posix_fadvise(file_->get(), offset_bytes, static_cast<off_t>(buffer.size()),
                      POSIX_FADV_DONTNEED);  // advice only
    }
    return absl::OkStatus();
  }

 private:
  const std::string path_;
  const std::unique_ptr<DirectFile> file_;
  const int64_t size_bytes_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<BlockFile>> OpenPosixBlockFile(const std::string& path,
                                                              int64_t size_bytes) {
  std::unique_ptr<DirectFile> file = Open(path, O_WRONLY | O_CREAT | O_TRUNC);
  if (file->get() < 0) {
    return PathError("open for writing", path, errno);
  }
  MT_RETURN_IF_ERROR(Reserve(path, file->get(), size_bytes));
  return std::make_unique<PosixBlockFile>(path, std::move(file));
}

absl::StatusOr<std::unique_ptr<ReadableFile>> OpenPosixReadableFile(const std::string& path) {
  // Non-blocking, so that the open of a pipe returns; it has no effect on a regular file.
  std::unique_ptr<DirectFile> file = Open(path, O_RDONLY | O_NONBLOCK);
  if (file->get() < 0) {
    return PathError("open", path, errno);
  }
  struct stat info = {};
  if (::fstat(file->get(), &info) != 0) {
    return PathError("look at", path, errno);
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not a regular file"));
  }
  return std::make_unique<PosixReadableFile>(path, std::move(file), info.st_size);
}

}  // namespace megatrain
