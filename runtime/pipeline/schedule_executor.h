#ifndef RUNTIME_PIPELINE_SCHEDULE_EXECUTOR_H_
#define RUNTIME_PIPELINE_SCHEDULE_EXECUTOR_H_

#include <array>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "runtime/device/device.h"
#include "runtime/device/stream_figures.h"
#include "runtime/schedule/schedule.h"

namespace megatrain {

// Does the work of operations. Called on the streams' threads: operations that a schedule does
// not order run at the same time.
class OperationRunner {
 public:
  virtual ~OperationRunner() = default;

  virtual absl::Status Run(const Operation& operation, Launcher& launcher) = 0;
};

// Four streams of a device and the events between them. Not thread-safe but for Figures. The
// destructor returns when all that was issued is over.
class ScheduleExecutor {
 public:
  explicit ScheduleExecutor(Device& device);

  // Hands every operation to its stream and returns at once. `schedule` and `runner` must live
  // until all of it is over; `result` is what stands for kResult.
  void Issue(const Schedule& schedule, OperationRunner& runner, Event& result);

  // Work of no schedule, after all that was issued to that stream.
  void Enqueue(StreamKind stream, Work work);

  StreamFigures Figures(StreamKind stream) const;

 private:
  Event& EventOf(EventKey key, Event& result);

  Device& device_;
  std::map<std::pair<EventKind, int>, std::unique_ptr<Event>> events_;
  std::array<std::unique_ptr<Stream>, kStreamCount> streams_;  // last: they use the events
};

}  // namespace megatrain

#endif  // RUNTIME_PIPELINE_SCHEDULE_EXECUTOR_H_
