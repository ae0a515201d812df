#ifndef RUNTIME_DEVICE_VIRTUAL_DEVICE_H_
#define RUNTIME_DEVICE_VIRTUAL_DEVICE_H_

#include <memory>
#include <random>
#include <vector>

#include "absl/time/time.h"
#include "runtime/device/device.h"

namespace megatrain {

class VirtualStream;

// A simulated device for tests: one thread, virtual time, work of random length. The same seed
// gives the same run. Work takes effect at its start or its end, by chance, so that what overlaps
// in virtual time meets in every order; fresh buffers are full of NaN. Nothing moves
// until somebody awaits something. Streams that wait for each other give INTERNAL. Not
// thread-safe.
class VirtualDevice final : public Device {
 public:
  explicit VirtualDevice(uint32_t seed);
  ~VirtualDevice() override;

  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(int64_t size_bytes) override;
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> AllocateHost(int64_t size_bytes) override;
  std::unique_ptr<Event> MakeEvent() override;
  std::unique_ptr<Stream> MakeStream(StreamPlace place) override;
  absl::Status Await(Event& event) override;
  absl::Status Drain() override;

 private:
  friend class VirtualStream;

  // Lets the streams go on until `done` holds or nothing can move.
  template <typename Condition>
  void RunUntil(Condition done);

  // All that takes no time; then the work that ends first. False when nothing is left to do.
  bool Advance();

  std::mt19937 random_;
  absl::Duration now_;
  absl::Status status_;
  std::vector<VirtualStream*> streams_;
};

}  // namespace megatrain

#endif  // RUNTIME_DEVICE_VIRTUAL_DEVICE_H_
