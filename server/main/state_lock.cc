#include "server/main/state_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"

namespace megatrain {

absl::StatusOr<std::unique_ptr<StateLock>> StateLock::Take(const std::string& state_dir) {
  const std::string path = absl::StrCat(state_dir, "/lock");
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0640);
  if (file < 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("opening ", path));
  }
  if (flock(file, LOCK_EX | LOCK_NB) != 0) {
    close(file);
    return absl::FailedPreconditionError(
        absl::StrCat(state_dir,
                     " is in use by another megatraind: stop that one, or take "
                     "another --state-dir"));
  }
  return std::unique_ptr<StateLock>(new StateLock(file));
}

StateLock::~StateLock() { close(file_); }

}  // namespace megatrain
