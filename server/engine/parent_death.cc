#include "server/engine/parent_death.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace megatrain {

absl::Status DieWithParent(pid_t parent) {
  if (parent == 0) {
    parent = getppid();
  }
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
    return absl::ErrnoToStatus(errno, "cannot tie this process to its parent");
  }
  if (getppid() != parent) {
    return absl::AbortedError("the process that started this one is gone");
  }
  return absl::OkStatus();
}

}  // namespace megatrain
