#include "runtime/device/copy_speed.h"

#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

constexpr int kCopies = 4;

}  // namespace

absl::StatusOr<double> MeasureCopyToDevice(Device& device, const Clock& clock, const void* host,
                                           int64_t size_bytes, SlabLane* lane) {
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<DeviceBuffer> buffer, device.Allocate(size_bytes));
  const std::unique_ptr<Stream> stream = device.MakeStream(StreamPlace::kDevice);
  const SlabLauncher::Reaches reaches_nothing = [](const void*) { return false; };
  const auto copy = [&](int times) {
    for (int i = 0; i < times; ++i) {
      stream->Enqueue([&](Launcher& launcher) {
        if (lane == nullptr) {
          launcher.CopyToDevice(buffer->data(), host, size_bytes);
        } else {
          SlabLauncher(launcher, *lane, reaches_nothing)
              .CopyToDevice(buffer->data(), host, size_bytes);
        }
        return absl::OkStatus();
      });
    }
    return device.Drain();
  };
  MT_RETURN_IF_ERROR(copy(1));  // the first one finds nothing prepared
  const absl::Duration start = clock.MonotonicNow();
  MT_RETURN_IF_ERROR(copy(kCopies));
  const double seconds = absl::ToDoubleSeconds(clock.MonotonicNow() - start);
  if (seconds <= 0) {
    return absl::UnavailableError("a copy took no time by the clock");
  }
  return static_cast<double>(kCopies * size_bytes) / seconds;
}

}  // namespace megatrain
