// Measures UpdateUnit while a GPU copies both ways:
// adamw_beside_copies_benchmark [million parameters [gradient bytes [seconds]]].

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/allowed_processors.h"
#include "runtime/base/clock.h"
#include "runtime/base/status_macros.h"
#include "runtime/device/cuda_device.h"
#include "runtime/optimizer/adamw_measurement.h"

namespace megatrain {
namespace {

constexpr int64_t kCopyBytes = int64_t{256} << 20;

// One direction: copies one after the other on a stream of its own, until told to stop.
class Copies {
 public:
  Copies(Device& device, bool to_device)
      : host_(device.AllocateHost(kCopyBytes)),
        memory_(device.Allocate(kCopyBytes)),
        to_device_(to_device),
        stream_(device.MakeStream(StreamPlace::kDevice)) {}

  absl::Status status() const { return host_.ok() ? memory_.status() : host_.status(); }

  void Start(int64_t most_copies) {
    for (int64_t i = 0; i < most_copies; ++i) {
      stream_->Enqueue([this](Launcher& launcher) { return Copy(launcher); });
    }
  }
  void Stop() { stops_ = true; }

  double bytes_per_second() const {
    const double seconds = absl::ToDoubleSeconds(stream_->Figures().busy);
    return static_cast<double>(count_ * kCopyBytes) / seconds;
  }

 private:
  absl::Status Copy(Launcher& launcher) {
    if (stops_) {
      return absl::OkStatus();
    }
    ++count_;
    if (to_device_) {
      launcher.CopyToDevice((*memory_)->data(), (*host_)->data(), kCopyBytes);
    } else {
      launcher.CopyToHost((*host_)->data(), (*memory_)->data(), kCopyBytes);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<DeviceBuffer>> host_;
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> memory_;
  const bool to_device_;
  std::atomic<bool> stops_ = false;
  std::atomic<int64_t> count_ = 0;
  const std::unique_ptr<Stream> stream_;  // last: its work uses all of the above
};

absl::Status Run(AdamWMeasurement& measurement, absl::Duration duration) {
  SystemClock clock;
  MT_ASSIGN_OR_RETURN(const auto device, CudaDevice::Create(clock));
  const int processors = AllowedProcessors();
  for (const int threads : {processors - 4, processors - 2, processors - 1, processors}) {
    Copies up(*device, true);
    Copies down(*device, false);
    MT_RETURN_IF_ERROR(up.status());
    MT_RETURN_IF_ERROR(down.status());
    // More than the fastest bus does in that time.
    const int64_t most_copies = 1000 * (1 + absl::ToInt64Seconds(duration));
    up.Start(most_copies);
    down.Start(most_copies);
    const auto rate = measurement.Measure(std::max(1, threads), duration);
    up.Stop();
    down.Stop();
    MT_RETURN_IF_ERROR(device->Drain());
    std::printf("%d threads: %.3f Gparam/s, %.1f GB/s; to the GPU %.1f GB/s, from it %.1f GB/s\n",
                threads, rate.parameters_per_second / 1e9, rate.bytes_per_second / 1e9,
                up.bytes_per_second() / 1e9, down.bytes_per_second() / 1e9);
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  const int64_t count = int64_t{argc > 1 ? std::atoi(argv[1]) : 1024} << 20;
  const int gradient_bytes = argc > 2 ? std::atoi(argv[2]) : 2;
  const absl::Duration duration = absl::Seconds(argc > 3 ? std::atoi(argv[3]) : 10);
  auto measurement = AdamWMeasurement::Create({.element_count = count,
                                               .gradient_bytes = gradient_bytes,
                                               .fill_threads = AllowedProcessors()});
  const absl::Status status =
      measurement.ok() ? Run(**measurement, duration) : measurement.status();
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  }
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace megatrain

int main(int argc, char** argv) { return megatrain::Main(argc, argv); }
