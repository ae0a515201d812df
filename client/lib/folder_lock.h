#ifndef CLIENT_LIB_FOLDER_LOCK_H_
#define CLIENT_LIB_FOLDER_LOCK_H_

#include <string>

#include "absl/status/statusor.h"

namespace megatrain {

// Keeps other processes that ask for the same lock out of a folder, while it lives and this process
// does.
class FolderLock {
 public:
  // FAILED_PRECONDITION when somebody has it, NOT_FOUND without such a folder.
  static absl::StatusOr<FolderLock> Take(const std::string& folder);

  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&&) = delete;
  ~FolderLock();

 private:
  explicit FolderLock(int fd) : fd_(fd) {}

  int fd_;
};

}  // namespace megatrain

#endif  // CLIENT_LIB_FOLDER_LOCK_H_
