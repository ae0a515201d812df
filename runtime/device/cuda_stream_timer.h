#ifndef RUNTIME_DEVICE_CUDA_STREAM_TIMER_H_
#define RUNTIME_DEVICE_CUDA_STREAM_TIMER_H_

#include <cuda_runtime_api.h>

#include <deque>
#include <optional>

#include "absl/time/time.h"
#include "runtime/base/mutex.h"
#include "runtime/device/cuda_shared.h"
#include "runtime/device/stream_figures.h"
#include "runtime/device/stream_meter.h"

namespace megatrain {

// Measures one CUDA stream on the GPU's own clock: timing events divide its life into laps, which
// are read once the GPU has passed them, so that nobody waits for a time. One thread makes laps;
// Figures may be called by any.
class CudaStreamTimer {
 public:
  // What a lap was spent on: a wait, or work when there is no reason.
  using State = std::optional<WaitReason>;

  // Waits for the stream, this once: its zero is set beside the host's clock.
  CudaStreamTimer(CudaShared& shared, cudaStream_t stream);

  // Tells what the stream is about to do, for figures taken before the lap's end is known.
  void Begin(State state) ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends a lap where the stream now is.
  void EndLap(State state) ABSL_LOCKS_EXCLUDED(mutex_);

  // Blocks while the GPU has more than kMaxWorkAhead pieces of work to do. Far more than it needs
  // not to run dry, and less than fills CUDA's launch queue, in which callers spin.
  void LimitWorkAhead() ABSL_LOCKS_EXCLUDED(mutex_);

  StreamFigures Figures() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Lap {
    CudaEventHandle end;
    State state;
  };

  void TakeFinishedLaps() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetState(State state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  CudaShared& shared_;
  const cudaStream_t stream_;
  Mutex mutex_;
  std::deque<Lap> open_laps_ ABSL_GUARDED_BY(mutex_);  // in order; their ends may be still to come
  State begun_ ABSL_GUARDED_BY(mutex_) = WaitReason::kNoWork;  // after the last of them
  CudaEventHandle last_end_ ABSL_GUARDED_BY(mutex_);           // of the laps that were taken
  absl::Duration taken_until_ ABSL_GUARDED_BY(mutex_);         // the time of last_end_
  StreamMeter meter_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace megatrain

#endif  // RUNTIME_DEVICE_CUDA_STREAM_TIMER_H_
