#ifndef RUNTIME_BASE_POSIX_PATH_ERROR_H_
#define RUNTIME_BASE_POSIX_PATH_ERROR_H_

#include <unistd.h>

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace megatrain {

// The status of a failed call to the system: "cannot `action` `path`" and the reason.
inline absl::Status PathError(const char* action, const std::string& path, int error_number) {
  return absl::ErrnoToStatus(error_number, absl::StrCat("cannot ", action, " ", path));
}

// Closes on destruction; -1 holds nothing.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;

  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

}  // namespace megatrain

#endif  // RUNTIME_BASE_POSIX_PATH_ERROR_H_
