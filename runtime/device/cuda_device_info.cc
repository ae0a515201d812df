#include "runtime/device/cuda_device_info.h"

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

absl::Status Available(cudaError_t error, int ordinal) {
  if (error == cudaSuccess) {
    return absl::OkStatus();
  }
  cudaGetLastError();
  int driver = 0;  // stays 0 where there is none, which CUDA calls a driver that is too old
  return absl::UnavailableError(
      cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0
          ? "this machine has no NVIDIA driver: start the server with --backend cpu"
          : absl::StrCat("GPU ", ordinal, " cannot be used: ", cudaGetErrorString(error)));
}

}  // namespace

absl::StatusOr<CudaDeviceInfo> ReadCudaDeviceInfo(int ordinal) {
  CudaDeviceInfo info = {.ordinal = ordinal};
  cudaDeviceProp properties;
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  MT_RETURN_IF_ERROR(Available(cudaSetDevice(ordinal), ordinal));
  MT_RETURN_IF_ERROR(Available(cudaGetDeviceProperties(&properties, ordinal), ordinal));
  MT_RETURN_IF_ERROR(Available(cudaMemGetInfo(&free_bytes, &total_bytes), ordinal));
  MT_RETURN_IF_ERROR(Available(cudaDriverGetVersion(&info.driver_version), ordinal));
  MT_RETURN_IF_ERROR(Available(cudaRuntimeGetVersion(&info.runtime_version), ordinal));
  info.name = properties.name;
  info.compute_capability_major = properties.major;
  info.compute_capability_minor = properties.minor;
  info.multiprocessor_count = properties.multiProcessorCount;
  info.total_bytes = static_cast<int64_t>(total_bytes);
  info.free_bytes = static_cast<int64_t>(free_bytes);
  return info;
}

}  // namespace megatrain
