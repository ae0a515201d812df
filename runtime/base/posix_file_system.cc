#include "runtime/base/posix_file_system.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "runtime/base/posix_block_files.h"
#include "runtime/base/posix_path_error.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

class PosixWritableFile final : public WritableFile {
 public:
  PosixWritableFile(std::string path, int fd) : path_(std::move(path)), file_(fd) {}

  absl::Status Append(std::string_view data) override {
    while (!data.empty()) {
      const ssize_t written = ::write(file_.get(), data.data(), data.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return PathError("write", path_, errno);
      data.remove_prefix(static_cast<size_t>(written));
    }
    return absl::OkStatus();
  }

  absl::Status Sync() override {
    if (::fsync(file_.get()) != 0) return PathError("sync", path_, errno);
    // Advice only: a large export must not push the rest of the machine out of its page cache.
    ::posix_fadvise(file_.get(), 0, 0, POSIX_FADV_DONTNEED);
    return absl::OkStatus();
  }

  absl::Status Close() override {
    const int fd = file_.Release();
    if (fd >= 0 && ::close(fd) != 0) return PathError("close", path_, errno);
    return absl::OkStatus();
  }

 private:
  const std::string path_;
  FileDescriptor file_;
};

// Of a path that does not end in a slash.
std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

absl::StatusOr<std::unique_ptr<WritableFile>> PosixFileSystem::OpenForWriting(
    const std::string& path, bool append) {
  const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | (append ? O_APPEND : O_TRUNC);
  const int fd = ::open(path.c_str(), flags, 0640);
  if (fd < 0) return PathError("open for writing", path, errno);
  return std::make_unique<PosixWritableFile>(path, fd);
}

absl::StatusOr<std::unique_ptr<BlockFile>> PosixFileSystem::OpenForBlocks(const std::string& path,
                                                                          int64_t size_bytes) {
  return OpenPosixBlockFile(path, size_bytes);
}

absl::StatusOr<std::unique_ptr<ReadableFile>> PosixFileSystem::OpenForReading(
    const std::string& path) {
  return OpenPosixReadableFile(path);
}

absl::StatusOr<std::string> PosixFileSystem::ReadFile(const std::string& path,
                                                      int64_t limit_bytes) {
  // Non-blocking, so that the open of a pipe returns; it has no effect on a regular file.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return PathError("open", path, errno);
  constexpr size_t kChunkBytes = size_t{64} << 10;
  std::string content;
  while (true) {
    const size_t old_size = content.size();
    content.resize(old_size + kChunkBytes);
    const ssize_t count = ::read(file.get(), content.data() + old_size, kChunkBytes);
    content.resize(old_size + static_cast<size_t>(std::max<ssize_t>(count, 0)));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return PathError("read", path, errno);
    if (static_cast<int64_t>(content.size()) > limit_bytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat(path, " is longer than the ", limit_bytes, " bytes that it may have"));
    }
    if (count == 0) return content;
  }
}

absl::StatusOr<int64_t> PosixFileSystem::FileSize(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return PathError("look at", path, errno);
  return static_cast<int64_t>(info.st_size);
}

bool PosixFileSystem::Exists(const std::string& path) {
  struct stat info;
  return ::lstat(path.c_str(), &info) == 0;
}

absl::StatusOr<std::vector<std::string>> PosixFileSystem::ListFolder(const std::string& path) {
  std::error_code error;
  std::vector<std::string> names;
  auto entry = std::filesystem::directory_iterator(path, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error) return PathError("list", path, error.value());
  std::sort(names.begin(), names.end());
  return names;
}

absl::Status PosixFileSystem::MakeFolders(const std::string& path) {
  // From the outermost on; an existing folder is left as it is, with its mode.
  for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string folder = path.substr(0, end);
    if (::mkdir(folder.c_str(), 0750) == 0) {
      MT_RETURN_IF_ERROR(SyncFolder(FolderOf(folder)));
    } else if (errno != EEXIST) {
      return PathError("make the folder", folder, errno);
    }
    if (end == std::string::npos) break;
  }
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return PathError("look at", path, errno);
  if (!S_ISDIR(info.st_mode)) return PathError("make the folder", path, ENOTDIR);
  return absl::OkStatus();
}

absl::Status PosixFileSystem::Rename(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) {
    return PathError("rename", absl::StrCat(from, " to ", to), errno);
  }
  return absl::OkStatus();
}

absl::Status PosixFileSystem::Link(const std::string& from, const std::string& to) {
  if (::link(from.c_str(), to.c_str()) != 0) {
    return PathError("link", absl::StrCat(from, " to ", to), errno);
  }
  return absl::OkStatus();
}

absl::Status PosixFileSystem::Truncate(const std::string& path, int64_t size_bytes) {
  if (::truncate(path.c_str(), size_bytes) != 0) return PathError("cut", path, errno);
  return absl::OkStatus();
}

absl::Status PosixFileSystem::SyncFolder(const std::string& path) {
  const FileDescriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0) return PathError("open the folder", path, errno);
  if (::fsync(folder.get()) != 0) return PathError("sync the folder", path, errno);
  return absl::OkStatus();
}

absl::Status PosixFileSystem::RemoveTree(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) return PathError("remove", path, error.value());
  return absl::OkStatus();
}

absl::StatusOr<int64_t> PosixFileSystem::AvailableBytes(const std::string& path) {
  struct statvfs info;
  if (::statvfs(path.c_str(), &info) != 0) return PathError("ask for the disk of", path, errno);
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

}  // namespace megatrain
