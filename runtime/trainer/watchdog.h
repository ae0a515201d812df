#ifndef RUNTIME_TRAINER_WATCHDOG_H_
#define RUNTIME_TRAINER_WATCHDOG_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "runtime/base/clock.h"
#include "runtime/base/condition_variable.h"
#include "runtime/base/mutex.h"
#include "runtime/pipeline/step_pipeline.h"
#include "runtime/trainer/stall_detector.h"

namespace megatrain {

// Looks at a job every second, and tells once when it has stood still for too long: on its streams
// kStepFactor mean steps and at least kLeastLimit; before the first step has ended, and in long
// work of the job's own thread, the generous limit. A disk that does not take what a job has in
// memory alone is another matter: that is told each time, and nothing ends. What it looks at costs
// the job nothing: figures that the streams keep anyway, and one counter. Thread-safe.
class Watchdog {
 public:
  static constexpr absl::Duration kLeastLimit = absl::Seconds(60);
  static constexpr int kStepFactor = 20;

  using Told = std::function<void(const std::string& what)>;

  // `on_stall` gets what stands still, in words. It is called on the watchdog's thread: the job's
  // own may be stuck for ever. The clock outlives this.
  Watchdog(const Clock& clock, absl::Duration generous_limit, Told on_stall);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void RaiseGenerousLimit(absl::Duration limit) ABSL_LOCKS_EXCLUDED(mutex_);

  // The job's thread begins long work, each piece of which is to beat. Empty: it ended. With
  // `on_disk_wait` it writes what would be lost with the process: a stall goes there, on the
  // watchdog's thread, instead of to `on_stall`.
  void SetPhase(std::string phase, Told on_disk_wait = nullptr) ABSL_LOCKS_EXCLUDED(mutex_);
  void Beat() { beat_count_.fetch_add(1, std::memory_order_relaxed); }

  // While it lives, the watchdog looks at the pipeline, which outlives it.
  class PipelineWatch {
   public:
    PipelineWatch(Watchdog& watchdog, const StepPipeline& pipeline) : watchdog_(watchdog) {
      watchdog_.SetPipeline(&pipeline);
    }
    ~PipelineWatch() { watchdog_.SetPipeline(nullptr); }
    PipelineWatch(const PipelineWatch&) = delete;
    PipelineWatch& operator=(const PipelineWatch&) = delete;

   private:
    Watchdog& watchdog_;
  };

  // A step took that long.
  void StepEnded(absl::Duration duration) ABSL_LOCKS_EXCLUDED(mutex_);

  // What the thread does every second.
  void Look() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void SetPipeline(const StepPipeline* pipeline) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Duration Limit() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Loop() ABSL_LOCKS_EXCLUDED(mutex_);

  const Clock& clock_;
  const Told on_stall_;
  std::atomic<int64_t> beat_count_ = 0;
  Mutex mutex_;
  ConditionVariable stop_asked_;
  std::string phase_ ABSL_GUARDED_BY(mutex_);
  Told on_disk_wait_ ABSL_GUARDED_BY(mutex_);
  const StepPipeline* pipeline_ ABSL_GUARDED_BY(mutex_) = nullptr;
  absl::Duration generous_limit_ ABSL_GUARDED_BY(mutex_);
  StallDetector detector_ ABSL_GUARDED_BY(mutex_);
  absl::Duration steps_duration_ ABSL_GUARDED_BY(mutex_);
  int64_t step_count_ ABSL_GUARDED_BY(mutex_) = 0;
  bool told_ ABSL_GUARDED_BY(mutex_) = false;            // to on_stall_
  bool told_disk_wait_ ABSL_GUARDED_BY(mutex_) = false;  // since it last moved
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace megatrain

#endif  // RUNTIME_TRAINER_WATCHDOG_H_
