#include "server/main/controller_loop.h"

#include <utility>

namespace megatrain {
namespace {

constexpr absl::Duration kInterval = absl::Seconds(1);

}  // namespace

void ControllerLoop::Start(std::function<void()> tick) {
  tick_ = std::move(tick);
  thread_ = std::thread([this] { Loop(); });
}

void ControllerLoop::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) {
    thread_.join();
  }
}

void ControllerLoop::Wake() {
  MutexLock lock(&mutex_);
  woken_ = true;
  changed_.NotifyAll();
}

void ControllerLoop::Loop() {
  while (true) {
    {
      MutexLock lock(&mutex_);
      if (!woken_ && !stopping_) {
        changed_.WaitFor(&mutex_, kInterval);
      }
      if (stopping_) {
        return;
      }
      woken_ = false;
    }
    tick_();
  }
}

}  // namespace megatrain
