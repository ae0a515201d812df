#ifndef RUNTIME_DEVICE_CUDA_DEVICE_H_
#define RUNTIME_DEVICE_CUDA_DEVICE_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "runtime/base/clock.h"
#include "runtime/device/cuda_device_info.h"
#include "runtime/device/device.h"

namespace megatrain {

struct CudaShared;

// One GPU of this machine. Each stream is a thread that launches on a CUDA stream of its own, or,
// for StreamPlace::kHost, does the work itself. Nothing here synchronizes the whole device, and
// after the first round of a program that repeats itself nothing is allocated on it. Figures of
// device streams are on the GPU's own clock; a wait counts from the end of what ran before it.
class CudaDevice final : public Device {
 public:
  // UNAVAILABLE when there is no such GPU, or no driver for it. `clock` outlives the device.
  static absl::StatusOr<std::unique_ptr<CudaDevice>> Create(Clock& clock, int ordinal = 0);
  ~CudaDevice() override;

  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(int64_t size_bytes) override;
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> AllocateHost(int64_t size_bytes) override;
  std::unique_ptr<Event> MakeEvent() override;
  std::unique_ptr<Stream> MakeStream(StreamPlace place) override;
  absl::Status Await(Event& event) override;
  absl::Status Drain() override;

  // Thread-safe, as are all figures.
  const CudaDeviceInfo& info() const { return info_; }

  struct MemoryFigures {
    int64_t allocation_count;  // of device memory, since the device was made
    int64_t reserved_bytes;    // of device memory, now
  };
  MemoryFigures memory_figures() const;

 private:
  CudaDevice(Clock& clock, CudaDeviceInfo info);

  const CudaDeviceInfo info_;
  const std::unique_ptr<CudaShared> shared_;
};

}  // namespace megatrain

#endif  // RUNTIME_DEVICE_CUDA_DEVICE_H_
