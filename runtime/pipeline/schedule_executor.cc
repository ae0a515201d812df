#include "runtime/pipeline/schedule_executor.h"

namespace megatrain {

ScheduleExecutor::ScheduleExecutor(Device& device) : device_(device) {
  for (const StreamKind kind : kAllStreams) {
    streams_[static_cast<int>(kind)] = device_.MakeStream(
        kind == StreamKind::kOptimizer ? StreamPlace::kHost : StreamPlace::kDevice);
  }
}

void ScheduleExecutor::Issue(const Schedule& schedule, OperationRunner& runner, Event& result) {
  for (const Operation& operation : schedule.operations) {
    Stream& stream = *streams_[static_cast<int>(operation.stream)];
    for (const EventKey& wait : operation.waits) {
      stream.Wait(EventOf(wait, result), ReasonOf(wait.kind));
    }
    stream.Enqueue(
        [&operation, &runner](Launcher& launcher) { return runner.Run(operation, launcher); });
    for (const EventKey& record : operation.records) {
      stream.Record(EventOf(record, result));
    }
  }
}

void ScheduleExecutor::Enqueue(StreamKind stream, Work work) {
  streams_[static_cast<int>(stream)]->Enqueue(std::move(work));
}

StreamFigures ScheduleExecutor::Figures(StreamKind stream) const {
  return streams_[static_cast<int>(stream)]->Figures();
}

Event& ScheduleExecutor::EventOf(EventKey key, Event& result) {
  if (key.kind == EventKind::kResult) {
    return result;
  }
  std::unique_ptr<Event>& event = events_[{key.kind, key.index}];
  if (event == nullptr) {
    event = device_.MakeEvent();
  }
  return *event;
}

}  // namespace megatrain
