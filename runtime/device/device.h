// The seam to what computes: memory, in-order streams and events between them. A backend per
// machine; everything above sees only this.

#ifndef RUNTIME_DEVICE_DEVICE_H_
#define RUNTIME_DEVICE_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/device/stream_figures.h"

namespace megatrain {

// Memory of a device, or of the host for it, 64-byte aligned at least. Must not outlive its device;
// work that is enqueued and touches it must be over when it goes.
class DeviceBuffer {
 public:
  virtual ~DeviceBuffer() = default;

  virtual std::byte* data() = 0;
  virtual int64_t size_bytes() const = 0;
};

// What work on a stream moves memory with, in the stream's order: on a GPU a call launches and
// returns. Valid only inside the Work that got it.
class Launcher {
 public:
  virtual ~Launcher() = default;

  virtual void CopyToDevice(void* device, const void* host, int64_t size_bytes) = 0;
  virtual void CopyToHost(void* host, const void* device, int64_t size_bytes) = 0;
  virtual void Fill(void* device, uint8_t byte, int64_t size_bytes) = 0;

  // Copies to the host may arrive there in a thread of the host's, by the end of the Work. Returns
  // once they have, for who must not touch that memory any longer.
  virtual void FinishCopies() {}

  // For who reuses memory that copies still read or write. SetMark marks what the stream was given
  // so far, by one of kMarkCount numbers; AwaitMark blocks the calling thread until the stream has
  // reached the latest mark of that number, and so all that it waits for; at once when there is
  // none. Marks outlive the Work. Where a call has done its work when it returns, so have these.
  static constexpr int kMarkCount = 4;
  virtual void SetMark(int mark) = 0;
  virtual void AwaitMark(int mark) = 0;

  // What kernels are launched on: a cudaStream_t on CUDA, nullptr where work runs on the host.
  virtual void* native_stream() = 0;
};

// Where a stream's work runs, and on whose memory.
enum class StreamPlace {
  kDevice,
  kDeviceYielding,  // the same, but where both could begin, the work of kDevice goes first
  kHost,            // a thread of this process, also on a GPU: norm and AdamW of the host store
};

// One piece of a stream's work. On a CPU it does the work; on a GPU it launches it.
using Work = std::function<absl::Status(Launcher&)>;

// A point in a stream that others wait for; may be recorded again and again. Opaque: handed to
// the streams of the device that made it, and must outlive what they were told to do with it.
class Event {
 public:
  virtual ~Event() = default;
};

// Work runs in the order in which it is enqueued, one at a time, beside the other streams.
// Enqueue, Wait and Record never block the caller. One thread at a time may call them (the same
// for all streams of a device: "issue order" below is its order); Figures may be called by any.
// The destructor returns when all that was enqueued is over.
class Stream {
 public:
  virtual ~Stream() = default;

  // Once any work of the device has failed, the work that is left is dropped, on every stream;
  // events go on, so that nothing hangs.
  virtual void Enqueue(Work work) = 0;

  // What is enqueued later runs after the record of `event` that is the latest in issue order;
  // at once when it was never recorded. The record need not have been reached yet.
  virtual void Wait(Event& event, WaitReason reason) = 0;

  virtual void Record(Event& event) = 0;

  virtual StreamFigures Figures() const = 0;
};

// Outlives its buffers, streams and events.
class Device {
 public:
  virtual ~Device() = default;

  // RESOURCE_EXHAUSTED when there is not that much. Contents are not defined.
  virtual absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(int64_t size_bytes) = 0;

  // Host memory that copies reach without a detour (pinned on a GPU): for small transfers.
  virtual absl::StatusOr<std::unique_ptr<DeviceBuffer>> AllocateHost(int64_t size_bytes) = 0;

  virtual std::unique_ptr<Event> MakeEvent() = 0;
  virtual std::unique_ptr<Stream> MakeStream(StreamPlace place) = 0;

  // Blocks until the record of `event` that is the latest in issue order is reached. Returns the
  // device's first error so far, for ever.
  virtual absl::Status Await(Event& event) = 0;

  // Blocks until all that was enqueued on all streams is over; returns as Await does.
  virtual absl::Status Drain() = 0;
};

}  // namespace megatrain

#endif  // RUNTIME_DEVICE_DEVICE_H_
