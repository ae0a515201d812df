#ifndef RUNTIME_OPTIMIZER_OPTIMIZER_POOL_H_
#define RUNTIME_OPTIMIZER_OPTIMIZER_POOL_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "runtime/base/condition_variable.h"
#include "runtime/base/mutex.h"

namespace megatrain {

// Threads that share the chunks of one piece of work at a time. Created once; running work
// allocates nothing. The threads have the default floating-point environment, whatever the
// creator's.
class OptimizerPool {
 public:
  // Of threads beside others that launch a device's work, which must not wait for them: there are
  // as many as processors.
  static constexpr int kBesideLaunches = 5;

  // At least one thread. `nicer`: what is added to the creator's niceness, see nice(2).
  explicit OptimizerPool(int thread_count, int nicer = 0);
  ~OptimizerPool();
  OptimizerPool(const OptimizerPool&) = delete;
  OptimizerPool& operator=(const OptimizerPool&) = delete;

  // Calls `body` with every number in [0, chunk_count) once, on the pool's threads and in no
  // fixed order, and returns when all calls have. One caller at a time.
  void Run(int64_t chunk_count, const std::function<void(int64_t)>& body)
      ABSL_LOCKS_EXCLUDED(mutex_);

  int thread_count() const { return static_cast<int>(threads_.size()); }

 private:
  void ThreadMain() ABSL_LOCKS_EXCLUDED(mutex_);

  const int nicer_;
  Mutex mutex_;
  ConditionVariable work_arrived_;
  ConditionVariable work_done_;
  const std::function<void(int64_t)>* body_ ABSL_GUARDED_BY(mutex_) = nullptr;
  int64_t chunk_count_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t round_ ABSL_GUARDED_BY(mutex_) = 0;  // of work, so that a thread joins each once
  int running_threads_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<int64_t> next_chunk_ = 0;
  std::vector<std::thread> threads_;  // last: they use all of the above
};

}  // namespace megatrain

#endif  // RUNTIME_OPTIMIZER_OPTIMIZER_POOL_H_
