#include "server/executor/executor.h"

#include <utility>

namespace megatrain {

Executor::Executor(int thread_count) {
  threads_.reserve(thread_count);
  for (int i = 0; i < thread_count; ++i) {
    threads_.emplace_back([this] { Loop(); });
  }
}

Executor::~Executor() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

void Executor::Run(std::function<void()> work) {
  {
    MutexLock lock(&mutex_);
    queue_.push_back(std::move(work));
  }
  changed_.NotifyOne();
}

void Executor::Loop() {
  while (true) {
    std::function<void()> work;
    {
      MutexLock lock(&mutex_);
      while (queue_.empty() && !stopping_) {
        changed_.Wait(&mutex_);
      }
      if (queue_.empty()) {
        return;
      }
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    work();
  }
}

}  // namespace megatrain
