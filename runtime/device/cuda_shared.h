// What the streams, events and buffers of one CudaDevice share. Private to this package.

#ifndef RUNTIME_DEVICE_CUDA_SHARED_H_
#define RUNTIME_DEVICE_CUDA_SHARED_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/clock.h"
#include "runtime/base/condition_variable.h"
#include "runtime/base/mutex.h"
#include "runtime/device/cuda_event_pool.h"
#include "runtime/device/device.h"

namespace megatrain {

// One record of an event. On a device stream it is reached when its CUDA event is; that may be
// asked only once the record was launched, because CUDA takes an event that was never recorded for
// one that is over. On a host stream there is no CUDA event: launched is reached.
struct RecordPoint {
  CudaEventHandle event;
  bool launched = false;  // under CudaShared::mutex
};

class CudaEvent final : public Event {
 public:
  std::shared_ptr<RecordPoint> latest;  // in issue order; only the issuing thread touches it
};

struct CudaShared {
  CudaShared(Clock& clock_in, int ordinal_in)
      : clock(clock_in),
        ordinal(ordinal_in),
        order_events(ordinal_in, cudaEventDisableTiming | cudaEventBlockingSync),
        timing_events(ordinal_in, cudaEventBlockingSync) {}

  // Keeps the first error of the device.
  void Update(const absl::Status& error) ABSL_LOCKS_EXCLUDED(mutex);

  // The same for what a CUDA call returned. False when that is an error.
  bool Check(cudaError_t error, const char* call) ABSL_LOCKS_EXCLUDED(mutex);

  absl::Status FirstError() ABSL_LOCKS_EXCLUDED(mutex);

  // Blocks until the point's record is launched, and then, for AwaitReached, until it is reached.
  void AwaitLaunched(const RecordPoint& point) ABSL_LOCKS_EXCLUDED(mutex);
  void AwaitReached(const RecordPoint& point) ABSL_LOCKS_EXCLUDED(mutex);

  void SetLaunched(RecordPoint& point) ABSL_LOCKS_EXCLUDED(mutex);

  // Blocks until no stream has an item left, and then until no device stream has work left.
  void AwaitAllLaunched() ABSL_LOCKS_EXCLUDED(mutex);
  void SynchronizeStreams() ABSL_LOCKS_EXCLUDED(mutex);

  Clock& clock;
  const int ordinal;
  CudaEventPool order_events;
  CudaEventPool timing_events;

  Mutex mutex;
  ConditionVariable progress;  // a record was launched, or the last item is over
  absl::Status status ABSL_GUARDED_BY(mutex);
  int64_t open_item_count ABSL_GUARDED_BY(mutex) = 0;  // enqueued and not launched, on all streams
  std::vector<cudaStream_t> device_streams ABSL_GUARDED_BY(mutex);
  int64_t allocation_count ABSL_GUARDED_BY(mutex) = 0;
  int64_t reserved_bytes ABSL_GUARDED_BY(mutex) = 0;
};

}  // namespace megatrain

#endif  // RUNTIME_DEVICE_CUDA_SHARED_H_
