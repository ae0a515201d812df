#ifndef RUNTIME_DEVICE_COPY_SPEED_H_
#define RUNTIME_DEVICE_COPY_SPEED_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "runtime/base/clock.h"
#include "runtime/device/device.h"
#include "runtime/device/slab_launcher.h"

namespace megatrain {

// Bytes a second at which `size_bytes` of host memory cross to the device: through the slabs of
// `lane`, or, where that is nullptr, directly, which takes pages that are pinned. Takes as much
// memory of the device, for a few copies. UNAVAILABLE when the clock stood still.
absl::StatusOr<double> MeasureCopyToDevice(Device& device, const Clock& clock, const void* host,
                                           int64_t size_bytes, SlabLane* lane = nullptr);

}  // namespace megatrain

#endif  // RUNTIME_DEVICE_COPY_SPEED_H_
