#include "runtime/pipeline/schedule_executor.h"

namespace megatrain {
namespace {

// Far more than are ever under way at once.
constexpr size_t kRememberedCalls = 64;

// A unit's update on the device gives way to the forward that it runs beside, which stops for it
// only where it needs what it makes: the tensor cores never wait for memory-bound work that can
// wait. A chunk's update does not: it is short, and the bus waits for it.
StreamPlace PlaceOf(StreamKind kind) {
  switch (kind) {
    case StreamKind::kOptimizer:
      return StreamPlace::kHost;
    case StreamKind::kDeviceUpdate:
      return StreamPlace::kDeviceYielding;
    default:
      return StreamPlace::kDevice;
  }
}

}  // namespace

ScheduleExecutor::ScheduleExecutor(Device& device) : device_(device) {
  for (const StreamKind kind : kAllStreams) {
    streams_[static_cast<int>(kind)] = device_.MakeStream(PlaceOf(kind));
  }
}

void ScheduleExecutor::Issue(const Schedule& schedule, OperationRunner& runner, Event& result) {
  Counts counts = {};
  for (const Operation& operation : schedule.operations) {
    ++counts[static_cast<int>(operation.stream)];
  }
  Note(counts, &schedule, /*name=*/"");
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

void ScheduleExecutor::Enqueue(StreamKind stream, std::string name, Work work) {
  Counts counts = {};
  counts[static_cast<int>(stream)] = 1;
  Note(counts, /*schedule=*/nullptr, std::move(name));
  streams_[static_cast<int>(stream)]->Enqueue(std::move(work));
}

StreamFigures ScheduleExecutor::Figures(StreamKind stream) const {
  return streams_[static_cast<int>(stream)]->Figures();
}

StreamProgress ScheduleExecutor::Progress(StreamKind stream) const {
  StreamProgress progress = {.figures = Figures(stream), .operation = ""};
  MutexLock lock(&mutex_);
  const int64_t number = progress.figures.operation_count;  // of the first that is not over
  if (number < issued_counts_[static_cast<int>(stream)]) {
    progress.operation = NameOf(stream, number);
  }
  return progress;
}

void ScheduleExecutor::Note(const Counts& counts, const Schedule* schedule, std::string name) {
  MutexLock lock(&mutex_);
  issued_.push_back({issued_counts_, schedule, std::move(name)});
  if (issued_.size() > kRememberedCalls) {
    issued_.pop_front();
  }
  for (size_t i = 0; i < counts.size(); ++i) {
    issued_counts_[i] += counts[i];
  }
}

std::string ScheduleExecutor::NameOf(StreamKind stream, int64_t number) const {
  for (auto call = issued_.rbegin(); call != issued_.rend(); ++call) {
    int64_t left = number - call->first[static_cast<int>(stream)];
    if (left < 0) {
      continue;
    }
    if (call->schedule == nullptr) {
      return call->name;
    }
    for (const Operation& operation : call->schedule->operations) {
      if (operation.stream == stream && left-- == 0) {
        return Describe(operation);
      }
    }
  }
  return "an operation of long ago";
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
