#ifndef RUNTIME_BASE_CONDITION_VARIABLE_H_
#define RUNTIME_BASE_CONDITION_VARIABLE_H_

#include <condition_variable>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "runtime/base/mutex.h"

namespace megatrain {

// std::condition_variable over our Mutex, so that clang checks that the lock is held.
class ConditionVariable {
 public:
  // Releases `mutex`, sleeps until notified (or spuriously), takes it again: call in a loop.
  void Wait(Mutex* mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { condition_.wait(*mutex); }

  // The same, but for `timeout` at most.
  void WaitFor(Mutex* mutex, absl::Duration timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    condition_.wait_for(*mutex, absl::ToChronoNanoseconds(timeout));
  }

  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable_any condition_;
};

}  // namespace megatrain

#endif  // RUNTIME_BASE_CONDITION_VARIABLE_H_
