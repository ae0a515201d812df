#ifndef RUNTIME_DEVICE_CUDA_DEVICE_INFO_H_
#define RUNTIME_DEVICE_CUDA_DEVICE_INFO_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace megatrain {

// What a plan and a report need to know of a GPU.
struct CudaDeviceInfo {
  int ordinal;
  std::string name;  // such as "NVIDIA H200"
  int compute_capability_major;
  int compute_capability_minor;
  int multiprocessor_count;
  int driver_version;   // of CUDA that the driver speaks, 1000 * major + 10 * minor
  int runtime_version;  // of CUDA that this program was built with, in the same form
  int64_t total_bytes;
  int64_t free_bytes;  // when this was read, with the context of this process in place
};

// UNAVAILABLE when there is no such GPU, or no driver for it.
absl::StatusOr<CudaDeviceInfo> ReadCudaDeviceInfo(int ordinal);

}  // namespace megatrain

#endif  // RUNTIME_DEVICE_CUDA_DEVICE_INFO_H_
