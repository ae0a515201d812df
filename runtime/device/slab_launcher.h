// Copies between a device and host memory that it does not reach: through a few pinned slabs, which
// threads of the host fill and empty while other slabs cross the bus.

#ifndef RUNTIME_DEVICE_SLAB_LAUNCHER_H_
#define RUNTIME_DEVICE_SLAB_LAUNCHER_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "runtime/device/device.h"
#include "runtime/optimizer/optimizer_pool.h"

namespace megatrain {

// The slabs of one stream, and the threads for them. Used by that stream's work alone. Outlives it,
// and what is made of it.
class SlabLane {
 public:
  // Two slabs cross or are filled in turn; a third takes up what one of them is late.
  static constexpr int kSlabCount = 3;

  // `slab_bytes` is positive. RESOURCE_EXHAUSTED when the device's host memory has no room.
  static absl::StatusOr<std::unique_ptr<SlabLane>> Create(Device& device, int64_t slab_bytes,
                                                          int threads);

  int64_t slab_bytes() const { return slab_bytes_; }
  std::byte* slab(int number) { return slabs_->data() + number * slab_bytes_; }

  // memcpy by the lane's threads.
  void Copy(void* to, const void* from, int64_t size_bytes);

 private:
  SlabLane(std::unique_ptr<DeviceBuffer> slabs, int64_t slab_bytes, int threads)
      : slabs_(std::move(slabs)), slab_bytes_(slab_bytes), pool_(threads) {}

  const std::unique_ptr<DeviceBuffer> slabs_;
  const int64_t slab_bytes_;
  OptimizerPool pool_;
};

// Another launcher, whose copies pass through the lane's slabs where `reaches` does not say that
// the device reaches the host memory itself. A copy to the device reads the host's memory before it
// returns, and a copy to the host has written it: both wait for what the stream waits for, in the
// calling thread. Uses all marks of the stream. Valid as long as the launcher and the lane.
class SlabLauncher final : public Launcher {
 public:
  using Reaches = std::function<bool(const void* host)>;

  SlabLauncher(Launcher& launcher, SlabLane& lane, const Reaches& reaches)
      : launcher_(launcher), lane_(lane), reaches_(reaches) {}

  void CopyToDevice(void* device, const void* host, int64_t size_bytes) override;
  void CopyToHost(void* host, const void* device, int64_t size_bytes) override;
  void Fill(void* device, uint8_t byte, int64_t size_bytes) override {
    launcher_.Fill(device, byte, size_bytes);
  }
  void SetMark(int mark) override { launcher_.SetMark(mark); }
  void AwaitMark(int mark) override { launcher_.AwaitMark(mark); }
  void* native_stream() override { return launcher_.native_stream(); }

 private:
  Launcher& launcher_;
  SlabLane& lane_;
  const Reaches& reaches_;
};

}  // namespace megatrain

#endif  // RUNTIME_DEVICE_SLAB_LAUNCHER_H_
