#include "runtime/trainer/watchdog.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace megatrain {
namespace {

constexpr absl::Duration kInterval = absl::Seconds(1);

}  // namespace

Watchdog::Watchdog(const Clock& clock, absl::Duration generous_limit, Told on_stall)
    : clock_(clock),
      on_stall_(std::move(on_stall)),
      generous_limit_(generous_limit),
      thread_([this] { Loop(); }) {}

Watchdog::~Watchdog() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    stop_asked_.NotifyAll();
  }
  thread_.join();
}

void Watchdog::RaiseGenerousLimit(absl::Duration limit) {
  MutexLock lock(&mutex_);
  generous_limit_ = std::max(generous_limit_, limit);
}

void Watchdog::SetPhase(std::string phase, Told on_disk_wait) {
  MutexLock lock(&mutex_);
  phase_ = std::move(phase);
  on_disk_wait_ = std::move(on_disk_wait);
}

void Watchdog::SetPipeline(const StepPipeline* pipeline) {
  MutexLock lock(&mutex_);
  pipeline_ = pipeline;
}

void Watchdog::StepEnded(absl::Duration duration) {
  MutexLock lock(&mutex_);
  steps_duration_ += duration;
  ++step_count_;
}

void Watchdog::Look() {
  std::string stall;
  Told tell;
  {
    MutexLock lock(&mutex_);
    JobLook look{.phase = phase_, .beat_count = beat_count_.load(std::memory_order_relaxed)};
    if (pipeline_ != nullptr) {
      look.pipeline = pipeline_->Progress();
    }
    const absl::Duration stalled = detector_.Take(look, clock_.MonotonicNow());
    if (stalled < Limit()) {
      told_disk_wait_ = false;
      return;
    }
    if (std::exchange(on_disk_wait_ == nullptr ? told_ : told_disk_wait_, true)) {
      return;
    }
    tell = on_disk_wait_ == nullptr ? on_stall_ : on_disk_wait_;
    stall =
        absl::StrCat("no progress for ", absl::FormatDuration(stalled), ": ", detector_.Describe());
  }
  tell(stall);
}

absl::Duration Watchdog::Limit() const {
  return !phase_.empty() || step_count_ == 0
             ? generous_limit_
             : std::max(kLeastLimit, kStepFactor * steps_duration_ / step_count_);
}

void Watchdog::Loop() {
  while (true) {
    {
      MutexLock lock(&mutex_);
      if (!stopping_) {
        stop_asked_.WaitFor(&mutex_, kInterval);
      }
      if (stopping_) {
        return;
      }
    }
    Look();
  }
}

}  // namespace megatrain
