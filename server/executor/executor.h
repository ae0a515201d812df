// Threads for work that blocks, so that gRPC's own never do.

#ifndef SERVER_EXECUTOR_EXECUTOR_H_
#define SERVER_EXECUTOR_EXECUTOR_H_

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "runtime/base/condition_variable.h"
#include "runtime/base/mutex.h"

namespace megatrain {

// Runs work in the order it was given on a fixed number of threads. Thread-safe.
class Executor {
 public:
  explicit Executor(int thread_count);

  // Finishes everything that was given before it returns.
  ~Executor();

  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Returns at once. Work may give more work.
  void Run(std::function<void()> work);

 private:
  void Loop();

  Mutex mutex_;
  ConditionVariable changed_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace megatrain

#endif  // SERVER_EXECUTOR_EXECUTOR_H_
