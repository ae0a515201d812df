#include "runtime/optimizer/optimizer_pool.h"

#include <sys/resource.h>

#include <cfenv>

#include "runtime/base/check.h"

namespace megatrain {

OptimizerPool::OptimizerPool(int thread_count, int nicer) : nicer_(nicer) {
  MT_CHECK(thread_count >= 1);
  for (int i = 0; i < thread_count; ++i) {
    threads_.emplace_back([this] { ThreadMain(); });
  }
}

OptimizerPool::~OptimizerPool() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    work_arrived_.NotifyAll();
  }
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

void OptimizerPool::Run(int64_t chunk_count, const std::function<void(int64_t)>& body) {
  MutexLock lock(&mutex_);
  MT_CHECK(body_ == nullptr);
  body_ = &body;
  chunk_count_ = chunk_count;
  next_chunk_ = 0;
  running_threads_ = thread_count();
  ++round_;
  work_arrived_.NotifyAll();
  while (running_threads_ > 0) {
    work_done_.Wait(&mutex_);
  }
  body_ = nullptr;
}

void OptimizerPool::ThreadMain() {
  // Flush to zero, which some libraries turn on, would change the bits of small values.
  MT_CHECK(std::fesetenv(FE_DFL_ENV) == 0);
  if (nicer_ > 0) {  // of this thread alone, as Linux has it
    setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + nicer_);
  }
  int64_t seen_round = 0;
  while (true) {
    const std::function<void(int64_t)>* body = nullptr;
    int64_t chunk_count = 0;
    {
      MutexLock lock(&mutex_);
      while (!stopping_ && round_ == seen_round) {
        work_arrived_.Wait(&mutex_);
      }
      if (stopping_) {
        return;
      }
      seen_round = round_;
      body = body_;
      chunk_count = chunk_count_;
    }
    for (int64_t chunk = next_chunk_++; chunk < chunk_count; chunk = next_chunk_++) {
      (*body)(chunk);
    }
    MutexLock lock(&mutex_);
    if (--running_threads_ == 0) {
      work_done_.NotifyOne();
    }
  }
}

}  // namespace megatrain
