#ifndef RUNTIME_DEVICE_MAPPED_BUFFER_H_
#define RUNTIME_DEVICE_MAPPED_BUFFER_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "runtime/device/device.h"

namespace megatrain {

// Zeroed anonymous memory of its own, page-aligned, for devices whose memory is the host's.
// RESOURCE_EXHAUSTED when the system has not that much to give.
absl::StatusOr<std::unique_ptr<DeviceBuffer>> MapBuffer(int64_t size_bytes);

}  // namespace megatrain

#endif  // RUNTIME_DEVICE_MAPPED_BUFFER_H_
