#include "client/lib/interruption.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <limits>

#include "runtime/base/check.h"

namespace megatrain {

Interruption::Interruption() : event_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  MT_CHECK(event_fd_ >= 0);
}

Interruption::~Interruption() { close(event_fd_); }

void Interruption::Trigger() noexcept {
  const int saved_errno = errno;  // a handler must leave it as it was
  const uint64_t one = 1;
  // The only failure is a counter at its end: triggered 2^64 times.
  [[maybe_unused]] const ssize_t written = write(event_fd_, &one, sizeof(one));
  errno = saved_errno;
}

bool Interruption::triggered() const { return WaitFor(absl::ZeroDuration()); }

bool Interruption::WaitFor(absl::Duration duration) const {
  const int64_t milliseconds =
      std::clamp<int64_t>(absl::ToInt64Milliseconds(absl::Ceil(duration, absl::Milliseconds(1))), 0,
                          std::numeric_limits<int>::max());
  pollfd waited{event_fd_, POLLIN, 0};
  // EINTR: a signal came; if it was Ctrl-C, its handler has written by now.
  int ready = poll(&waited, 1, static_cast<int>(milliseconds));
  if (ready < 0 && errno == EINTR) {
    ready = poll(&waited, 1, 0);
  }
  return ready > 0;
}

}  // namespace megatrain
