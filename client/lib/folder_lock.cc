#include "client/lib/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/lib/error_text.h"

namespace megatrain {

absl::StatusOr<FolderLock> FolderLock::Take(const std::string& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", folder));
  }
  FolderLock lock(fd);
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    return WithClientReason(
        absl::FailedPreconditionError(absl::StrCat("another process is at work in ", folder)),
        "FOLDER_BUSY");
  }
  return lock;
}

FolderLock::FolderLock(FolderLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FolderLock::~FolderLock() {
  if (fd_ >= 0) {
    close(fd_);  // which ends the lock
  }
}

}  // namespace megatrain
