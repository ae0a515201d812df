#ifndef RUNTIME_DEVICE_CPU_DEVICE_H_
#define RUNTIME_DEVICE_CPU_DEVICE_H_

#include <memory>

#include "runtime/base/clock.h"
#include "runtime/device/device.h"

namespace megatrain {

// This machine's processors: a thread a stream, buffers in anonymous memory of their own that is
// apart from all host state. `clock` outlives it.
class CpuDevice final : public Device {
 public:
  explicit CpuDevice(Clock& clock);
  ~CpuDevice() override;

  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(int64_t size_bytes) override;
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> AllocateHost(int64_t size_bytes) override;
  std::unique_ptr<Event> MakeEvent() override;
  std::unique_ptr<Stream> MakeStream(StreamPlace place) override;
  absl::Status Await(Event& event) override;
  absl::Status Drain() override;

  struct Shared;  // what the device's streams and events share, under one lock

 private:
  const std::unique_ptr<Shared> shared_;
};

}  // namespace megatrain

#endif  // RUNTIME_DEVICE_CPU_DEVICE_H_
