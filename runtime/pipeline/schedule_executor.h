#ifndef RUNTIME_PIPELINE_SCHEDULE_EXECUTOR_H_
#define RUNTIME_PIPELINE_SCHEDULE_EXECUTOR_H_

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "runtime/base/mutex.h"
#include "runtime/device/device.h"
#include "runtime/device/stream_figures.h"
#include "runtime/pipeline/pipeline_progress.h"
#include "runtime/schedule/schedule.h"

namespace megatrain {

// Does the work of operations. Called on the streams' threads: operations that a schedule does
// not order run at the same time.
class OperationRunner {
 public:
  virtual ~OperationRunner() = default;

  virtual absl::Status Run(const Operation& operation, Launcher& launcher) = 0;
};

// The streams of a device, one of each kind, and the events between them. Not thread-safe but for
// Figures and Progress. The destructor returns when all that was issued is over.
class ScheduleExecutor {
 public:
  explicit ScheduleExecutor(Device& device);

  // Hands every operation to its stream and returns at once. `schedule` and `runner` must live
  // until all of it is over; `result` is what stands for kResult.
  void Issue(const Schedule& schedule, OperationRunner& runner, Event& result)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Work of no schedule, after all that was issued to that stream; `name` is what Progress calls
  // it.
  void Enqueue(StreamKind stream, std::string name, Work work) ABSL_LOCKS_EXCLUDED(mutex_);

  StreamFigures Figures(StreamKind stream) const;
  StreamProgress Progress(StreamKind stream) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  using Counts = std::array<int64_t, kStreamCount>;

  // What was handed to the streams by one call.
  struct Issued {
    Counts first;              // the number of its first operation on each stream
    const Schedule* schedule;  // nullptr: one piece of work named `name`
    std::string name;
  };

  // Before the streams get it, so that nothing ends that is not known to have been issued.
  void Note(const Counts& counts, const Schedule* schedule, std::string name)
      ABSL_LOCKS_EXCLUDED(mutex_);
  std::string NameOf(StreamKind stream, int64_t number) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Event& EventOf(EventKey key, Event& result);

  Device& device_;
  mutable Mutex mutex_;
  Counts issued_counts_ ABSL_GUARDED_BY(mutex_) = {};
  std::deque<Issued> issued_ ABSL_GUARDED_BY(mutex_);  // the latest ones, in order
  std::map<std::pair<EventKind, int>, std::unique_ptr<Event>> events_;
  std::array<std::unique_ptr<Stream>, kStreamCount> streams_;  // last: they use the events
};

}  // namespace megatrain

#endif  // RUNTIME_PIPELINE_SCHEDULE_EXECUTOR_H_
