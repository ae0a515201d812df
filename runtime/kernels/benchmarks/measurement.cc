#include "runtime/kernels/benchmarks/measurement.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "runtime/kernels/cuda_status.h"

namespace megatrain {

void Check(const absl::Status& status) {
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    std::abort();
  }
}

void Check(cudaError_t error, const char* what) { Check(CudaStatus(error, what)); }

void* AllocateDeviceMemory(int64_t size_bytes) {
  void* memory = nullptr;
  Check(cudaMalloc(&memory, size_bytes), "cudaMalloc");
  return memory;
}

void Measure(const char* name, int64_t moved_bytes, const std::function<absl::Status()>& launch) {
  cudaEvent_t begin, end;
  Check(cudaEventCreate(&begin), "cudaEventCreate");
  Check(cudaEventCreate(&end), "cudaEventCreate");
  Check(launch());
  std::array<float, 20> milliseconds;
  for (float& time : milliseconds) {
    Check(cudaEventRecord(begin), "cudaEventRecord");
    Check(launch());
    Check(cudaEventRecord(end), "cudaEventRecord");
    Check(cudaEventSynchronize(end), name);
    Check(cudaEventElapsedTime(&time, begin, end), "cudaEventElapsedTime");
  }
  const auto median = milliseconds.begin() + milliseconds.size() / 2;
  std::nth_element(milliseconds.begin(), median, milliseconds.end());
  const double seconds = *median * 1e-3;
  std::printf("%-20s %9.1f us %8.0f GB/s\n", name, seconds * 1e6,
              static_cast<double>(moved_bytes) / seconds * 1e-9);
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
}

}  // namespace megatrain
