// How benchmarks of kernels and templates measure.

#ifndef RUNTIME_KERNELS_BENCHMARKS_MEASUREMENT_H_
#define RUNTIME_KERNELS_BENCHMARKS_MEASUREMENT_H_

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"

namespace megatrain {

// Ends the program with an error's message.
void Check(const absl::Status& status);
void Check(cudaError_t error, const char* what);

struct FreeDeviceMemory {
  void operator()(void* memory) const { cudaFree(memory); }
};
template <typename T>
using DeviceArray = std::unique_ptr<T[], FreeDeviceMemory>;

void* AllocateDeviceMemory(int64_t size_bytes);

template <typename T>
DeviceArray<T> AllocateArray(int64_t count) {
  return DeviceArray<T>(static_cast<T*>(AllocateDeviceMemory(count * sizeof(T))));
}

// `count` elements: those of the block over and over.
template <typename T>
DeviceArray<T> UploadRepeated(const std::vector<T>& block, int64_t count) {
  const auto block_count = static_cast<int64_t>(block.size());
  DeviceArray<T> array = AllocateArray<T>(count);
  for (int64_t at = 0; at < count; at += block_count) {
    const int64_t part = std::min(block_count, count - at);
    Check(cudaMemcpy(array.get() + at, block.data(), part * sizeof(T), cudaMemcpyHostToDevice),
          "upload");
  }
  return array;
}

// `count` normal numbers of this standard deviation: a block over and over, whose length shares no
// factor with a row's.
DeviceArray<__nv_bfloat16> NormalNumbers(int64_t count, float deviation);

// The median of 20 times of what `launch` enqueues on `stream`, after one to warm up.
double MedianSeconds(const std::function<absl::Status()>& launch, cudaStream_t stream = nullptr);

// Prints MedianSeconds, and the bytes that `launch` must move over that time.
void Measure(const char* name, int64_t moved_bytes, const std::function<absl::Status()>& launch);

}  // namespace megatrain

#endif  // RUNTIME_KERNELS_BENCHMARKS_MEASUREMENT_H_
