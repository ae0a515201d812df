#ifndef CLIENT_LIB_INTERRUPTION_H_
#define CLIENT_LIB_INTERRUPTION_H_

#include "absl/time/time.h"

namespace megatrain {

// A person's wish to stop waiting: Ctrl-C. Once triggered it stays so. Thread-safe.
class Interruption {
 public:
  Interruption();
  ~Interruption();

  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  // Safe in a signal handler.
  void Trigger() noexcept;

  bool triggered() const;

  // Waits for `duration`; true as soon as the wish is there.
  bool WaitFor(absl::Duration duration) const;

 private:
  int event_fd_;
};

}  // namespace megatrain

#endif  // CLIENT_LIB_INTERRUPTION_H_
