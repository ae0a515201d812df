#ifndef RUNTIME_DEVICE_STREAM_METER_H_
#define RUNTIME_DEVICE_STREAM_METER_H_

#include <optional>

#include "absl/time/time.h"
#include "runtime/device/stream_figures.h"

namespace megatrain {

// Splits a stream's life into work and waits without a gap, so that they add up to wall time.
// Starts with nothing to do. Not thread-safe; times never go back.
class StreamMeter {
 public:
  explicit StreamMeter(absl::Duration now) : start_(now), since_(now) {}

  void StartWork(absl::Duration now) { Switch(std::nullopt, now); }
  void FinishWork(absl::Duration now) {
    Switch(WaitReason::kNoWork, now);
    ++figures_.operation_count;
  }
  void StartWait(WaitReason reason, absl::Duration now) { Switch(reason, now); }
  void FinishWait(absl::Duration now) { Switch(WaitReason::kNoWork, now); }

  // Up to `now`, what goes on included.
  StreamFigures Figures(absl::Duration now) const {
    StreamFigures figures = figures_;
    Add(figures, now - since_);
    figures.wall = now - start_;
    return figures;
  }

 private:
  void Switch(std::optional<WaitReason> waits_for, absl::Duration now) {
    Add(figures_, now - since_);
    since_ = now;
    waits_for_ = waits_for;
  }

  void Add(StreamFigures& figures, absl::Duration duration) const {
    if (waits_for_.has_value()) {
      figures.waits[static_cast<int>(*waits_for_)] += duration;
    } else {
      figures.busy += duration;
    }
  }

  const absl::Duration start_;
  absl::Duration since_;                                       // of the state that lasts
  std::optional<WaitReason> waits_for_ = WaitReason::kNoWork;  // none: it works
  StreamFigures figures_;
};

}  // namespace megatrain

#endif  // RUNTIME_DEVICE_STREAM_METER_H_
