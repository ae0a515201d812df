#include "runtime/kernels/benchmarks/measurement.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <random>
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

DeviceArray<__nv_bfloat16> NormalNumbers(int64_t count, float deviation) {
  constexpr int64_t kBlock = (int64_t{1} << 20) + 7;
  std::mt19937 generator(1);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<__nv_bfloat16> block(std::min(count, kBlock));
  std::generate(block.begin(), block.end(), [&] { return __float2bfloat16_rn(normal(generator)); });
  return UploadRepeated(block, count);
}

double MedianSeconds(const std::function<absl::Status()>& launch, cudaStream_t stream) {
  cudaEvent_t begin, end;
  Check(cudaEventCreate(&begin), "cudaEventCreate");
  Check(cudaEventCreate(&end), "cudaEventCreate");
  Check(launch());
  std::array<float, 20> milliseconds;
  for (float& time : milliseconds) {
    Check(cudaEventRecord(begin, stream), "cudaEventRecord");
    Check(launch());
    Check(cudaEventRecord(end, stream), "cudaEventRecord");
    Check(cudaEventSynchronize(end), "benchmark");
    Check(cudaEventElapsedTime(&time, begin, end), "cudaEventElapsedTime");
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  const auto median = milliseconds.begin() + milliseconds.size() / 2;
  std::nth_element(milliseconds.begin(), median, milliseconds.end());
  return *median * 1e-3;
}

void Measure(const char* name, int64_t moved_bytes, const std::function<absl::Status()>& launch) {
  const double seconds = MedianSeconds(launch);
  std::printf("%-20s %9.1f us %8.0f GB/s\n", name, seconds * 1e6,
              static_cast<double>(moved_bytes) / seconds * 1e-9);
}

}  // namespace megatrain
