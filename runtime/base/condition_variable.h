#ifndef RUNTIME_BASE_CONDITION_VARIABLE_H_
#define RUNTIME_BASE_CONDITION_VARIABLE_H_

#include <condition_variable>

#include "absl/base/thread_annotations.h"
#include "runtime/base/mutex.h"

namespace megatrain {

// std::condition_variable over our Mutex, so that clang checks that the lock is held.
class ConditionVariable {
 public:
  // Releases `mutex`, sleeps until notified (or spuriously), takes it again: call in a loop.
  void Wait(Mutex* mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { condition_.wait(*mutex); }

  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable_any condition_;
};

}  // namespace megatrain

#endif  // RUNTIME_BASE_CONDITION_VARIABLE_H_
