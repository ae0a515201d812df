#ifndef SERVER_MAIN_STATE_LOCK_H_
#define SERVER_MAIN_STATE_LOCK_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace megatrain {

// Keeps a second daemon away from a state folder, for as long as it lives; the kernel lets go of
// it however the process ends.
class StateLock {
 public:
  // FAILED_PRECONDITION when another process has it.
  static absl::StatusOr<std::unique_ptr<StateLock>> Take(const std::string& state_dir);
  ~StateLock();

  StateLock(const StateLock&) = delete;
  StateLock& operator=(const StateLock&) = delete;

 private:
  explicit StateLock(int file) : file_(file) {}

  const int file_;
};

}  // namespace megatrain

#endif  // SERVER_MAIN_STATE_LOCK_H_
