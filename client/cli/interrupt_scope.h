#ifndef CLIENT_CLI_INTERRUPT_SCOPE_H_
#define CLIENT_CLI_INTERRUPT_SCOPE_H_

#include <csignal>

#include "client/lib/interruption.h"

namespace megatrain {

// While one lives, the first Ctrl-C triggers the interruption in place of ending the process; a
// second one ends it. At most one at a time in a process.
class InterruptScope {
 public:
  explicit InterruptScope(Interruption& interruption);
  ~InterruptScope();

  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

 private:
  struct sigaction before_;
};

}  // namespace megatrain

#endif  // CLIENT_CLI_INTERRUPT_SCOPE_H_
