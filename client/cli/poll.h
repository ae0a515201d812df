#ifndef CLIENT_CLI_POLL_H_
#define CLIENT_CLI_POLL_H_

#include <algorithm>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/lib/connection.h"

namespace megatrain {

// Asks with growing pauses (0.1 s to 2 s) until `is_done`. Errors: those of `get`, CANCELLED after
// Ctrl-C, DEADLINE_EXCEEDED after the connection's timeout.
template <typename Resource>
absl::StatusOr<Resource> PollUntil(Connection& connection,
                                   const std::function<absl::StatusOr<Resource>()>& get,
                                   const std::function<bool(const Resource&)>& is_done) {
  for (absl::Duration pause = absl::Milliseconds(100);;) {
    absl::StatusOr<Resource> resource = get();
    if (!resource.ok() || is_done(*resource)) {
      return resource;
    }
    connection.interruption().WaitFor(std::min(pause, connection.Remaining()));
    if (absl::Status going_on = connection.CheckContinue(); !going_on.ok()) {
      return going_on;
    }
    pause = std::min(pause * 2, absl::Seconds(2));
  }
}

}  // namespace megatrain

#endif  // CLIENT_CLI_POLL_H_
