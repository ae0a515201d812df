#include "client/cli/interrupt_scope.h"

#include <atomic>

#include "runtime/base/check.h"

namespace megatrain {
namespace {

// A signal handler takes no arguments, so this is where it finds what to do.
std::atomic<Interruption*> target = nullptr;

void HandleSignal(int) {
  if (Interruption* interruption = target.load(); interruption != nullptr) {
    interruption->Trigger();
  }
}

}  // namespace

InterruptScope::InterruptScope(Interruption& interruption) : before_() {
  MT_CHECK(target.exchange(&interruption) == nullptr);
  struct sigaction action{};
  action.sa_handler = HandleSignal;
  action.sa_flags = SA_RESETHAND;
  MT_CHECK(sigaction(SIGINT, &action, &before_) == 0);
}

InterruptScope::~InterruptScope() {
  sigaction(SIGINT, &before_, nullptr);
  target = nullptr;
}

}  // namespace megatrain
