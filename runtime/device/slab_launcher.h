// Copies between a device and host memory that it does not reach: through a few pinned slabs, which
// threads of the host fill and empty while other slabs cross the bus.

#ifndef RUNTIME_DEVICE_SLAB_LAUNCHER_H_
#define RUNTIME_DEVICE_SLAB_LAUNCHER_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "runtime/device/device.h"
#include "runtime/optimizer/optimizer_pool.h"

namespace megatrain {

// The slabs of one stream, used in turn, and the threads for them. Used by that stream's work
// alone. Outlives it, and what is made of it.
class SlabLane {
 public:
  // Two slabs cross or are filled in turn; a third takes up what one of them is late.
  static constexpr int kSlabCount = 3;

  // More add little: a lane of so many reaches half to all of a bus of PCIe's fifth generation.
  static constexpr int kMostThreads = 4;

  // `slab_bytes` is positive; of `threads`, kMostThreads at most are taken. RESOURCE_EXHAUSTED when
  // the device's host memory has no room.
  static absl::StatusOr<std::unique_ptr<SlabLane>> Create(Device& device, int64_t slab_bytes,
                                                          int threads);

  int64_t slab_bytes() const { return slab_bytes_; }
  std::byte* slab(int number) { return slabs_->data() + number * slab_bytes_; }

  // The one whose turn it is; Take passes the turn on.
  int next() const { return next_; }
  void Take() { next_ = (next_ + 1) % kSlabCount; }

  // memcpy by the lane's threads.
  void Copy(void* to, const void* from, int64_t size_bytes);

 private:
  SlabLane(std::unique_ptr<DeviceBuffer> slabs, int64_t slab_bytes, int threads)
      : slabs_(std::move(slabs)), slab_bytes_(slab_bytes), pool_(threads) {}

  const std::unique_ptr<DeviceBuffer> slabs_;
  const int64_t slab_bytes_;
  int next_ = 0;
  OptimizerPool pool_;
};

// Another launcher, for one Work, whose copies pass through the lane's slabs where `reaches` does
// not say that the device reaches the host memory itself. A copy to the device has read the host's
// memory when it returns; a copy to the host has written it when FinishCopies or the destructor
// does, or the next copy to the device begins. They wait in the calling thread for what the Work
// waits for, and for no more of each other than that slabs come free: while one crosses, others are
// filled or emptied, of the same copy or of the next. Uses all marks of the stream. Valid as long
// as the launcher and the lane.
class SlabLauncher final : public Launcher {
 public:
  using Reaches = std::function<bool(const void* host)>;

  SlabLauncher(Launcher& launcher, SlabLane& lane, const Reaches& reaches)
      : launcher_(launcher), lane_(lane), reaches_(reaches) {}
  ~SlabLauncher() override { FinishCopies(); }
  SlabLauncher(const SlabLauncher&) = delete;
  SlabLauncher& operator=(const SlabLauncher&) = delete;

  void CopyToDevice(void* device, const void* host, int64_t size_bytes) override;
  void CopyToHost(void* host, const void* device, int64_t size_bytes) override;
  void Fill(void* device, uint8_t byte, int64_t size_bytes) override {
    launcher_.Fill(device, byte, size_bytes);
  }
  void FinishCopies() override;
  void SetMark(int mark) override { launcher_.SetMark(mark); }
  void AwaitMark(int mark) override { launcher_.AwaitMark(mark); }
  void* native_stream() override { return launcher_.native_stream(); }

 private:
  // Where the content of a slab is to go.
  struct Leaving {
    void* host = nullptr;
    int64_t size_bytes = 0;
  };

  int TakeSlab();
  void EmptyOldest();
  void AwaitSource();

  Launcher& launcher_;
  SlabLane& lane_;
  const Reaches& reaches_;
  std::array<Leaving, SlabLane::kSlabCount> leaving_;  // by slab
  int leaving_count_ = 0;                              // of the slabs that were taken last
  bool source_is_there_ = false;                       // what the Work waits for has come
};

}  // namespace megatrain

#endif  // RUNTIME_DEVICE_SLAB_LAUNCHER_H_
