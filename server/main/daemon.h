// The daemon: everything wired together, in the order of its life.

#ifndef SERVER_MAIN_DAEMON_H_
#define SERVER_MAIN_DAEMON_H_

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/clock.h"
#include "server/config/daemon_config.h"

namespace megatrain {

class Daemon {
 public:
  // Serves when this returns. FAILED_PRECONDITION when the state folder is in use or of a newer
  // program; UNAVAILABLE when an address is taken. The clock outlives it.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(const DaemonConfig& config,
                                                       const Clock& clock);

  // Stops at once, if Stop did not.
  ~Daemon();

  // In this order: not healthy any more, no changes taken, the running job back into the queue
  // (skipped once `hurry` becomes true), streams ended, calls finished, files closed.
  void Stop(const std::atomic<bool>& hurry);

  const std::string& address() const;
  const std::string& metrics_address() const;

 private:
  struct Parts;

  explicit Daemon(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

}  // namespace megatrain

#endif  // SERVER_MAIN_DAEMON_H_
