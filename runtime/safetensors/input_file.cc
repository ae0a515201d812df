#include "runtime/safetensors/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

namespace megatrain {

absl::StatusOr<std::unique_ptr<InputFile>> InputFile::Open(const std::string& path) {
  // Without O_NONBLOCK a pipe of that name would hold this thread for ever.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  }
  auto file = std::unique_ptr<InputFile>(new InputFile(path, fd));
  struct stat info = {};
  if (::fstat(fd, &info) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot look at ", path));
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not a regular file"));
  }
  file->size_bytes_ = info.st_size;
  return file;
}

InputFile::~InputFile() { ::close(fd_); }

absl::Status InputFile::Read(int64_t offset_bytes, std::span<char> buffer) const {
  int64_t at = offset_bytes;
  std::span<char> rest = buffer;
  while (!rest.empty()) {
    const ssize_t count = ::pread(fd_, rest.data(), rest.size(), at);
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path_));
    }
    if (count == 0) {
      return absl::DataLossError(absl::StrCat(path_, ": ends at byte ", at, ", but ",
                                              offset_bytes + static_cast<int64_t>(buffer.size()),
                                              " bytes were expected"));
    }
    rest = rest.subspan(count);
    at += count;
  }
  // Advice only.
  ::posix_fadvise(fd_, offset_bytes, static_cast<off_t>(buffer.size()), POSIX_FADV_DONTNEED);
  return absl::OkStatus();
}

}  // namespace megatrain
