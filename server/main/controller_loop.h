#ifndef SERVER_MAIN_CONTROLLER_LOOP_H_
#define SERVER_MAIN_CONTROLLER_LOOP_H_

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "runtime/base/condition_variable.h"
#include "runtime/base/mutex.h"

namespace megatrain {

// A thread that calls `tick` when woken, and otherwise once a second. Thread-safe.
class ControllerLoop {
 public:
  ControllerLoop() = default;
  ~ControllerLoop() { Stop(); }

  void Start(std::function<void()> tick);

  // Returns after the running tick; none comes after it.
  void Stop();

  // A tick begins after this call. Any thread, also before Start and after Stop.
  void Wake();

 private:
  void Loop();

  std::function<void()> tick_;
  Mutex mutex_;
  ConditionVariable changed_;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace megatrain

#endif  // SERVER_MAIN_CONTROLLER_LOOP_H_
