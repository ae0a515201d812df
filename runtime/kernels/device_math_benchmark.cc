// Measures the pipeline's own arithmetic on a GPU, which memory should bound:
// device_math_benchmark [million elements].

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/kernels/adamw_kernel.h"
#include "runtime/kernels/cuda_status.h"
#include "runtime/kernels/gradient_math.h"
#include "runtime/kernels/split_float_kernel.h"
#include "runtime/optimizer/adamw_step.h"

namespace megatrain {
namespace {

constexpr int kRounds = 20;
constexpr int64_t kBlock = int64_t{1} << 20;  // elements

struct Free {
  void operator()(void* memory) const { cudaFree(memory); }
};
template <typename T>
using Array = std::unique_ptr<T[], Free>;

void Check(const absl::Status& status) {
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    std::exit(1);
  }
}

void Check(cudaError_t error, const char* what) { Check(CudaStatus(error, what)); }

template <typename T>
Array<T> Allocate(int64_t count) {
  void* memory = nullptr;
  Check(cudaMalloc(&memory, count * sizeof(T)), "cudaMalloc");
  return Array<T>(static_cast<T*>(memory));
}

// Whole blocks of the magnitudes of normal numbers, each a copy of the first.
Array<float> Magnitudes(int64_t count, float scale) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> block(kBlock);
  std::generate(block.begin(), block.end(), [&] { return std::abs(normal(random)); });
  Array<float> values = Allocate<float>(count);
  for (int64_t at = 0; at < count; at += kBlock) {
    Check(
        cudaMemcpy(values.get() + at, block.data(), kBlock * sizeof(float), cudaMemcpyHostToDevice),
        "upload");
  }
  return values;
}

void Measure(const char* name, int64_t moved_bytes, const std::function<absl::Status()>& launch) {
  cudaEvent_t begin, end;
  Check(cudaEventCreate(&begin), "cudaEventCreate");
  Check(cudaEventCreate(&end), "cudaEventCreate");
  Check(launch());  // warm up
  Check(cudaEventRecord(begin), "cudaEventRecord");
  for (int round = 0; round < kRounds; ++round) {
    Check(launch());
  }
  Check(cudaEventRecord(end), "cudaEventRecord");
  Check(cudaEventSynchronize(end), name);
  float milliseconds = 0;
  Check(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
  const double seconds = milliseconds * 1e-3 / kRounds;
  std::printf("%-20s %9.1f us %8.0f GB/s\n", name, seconds * 1e6,
              static_cast<double>(moved_bytes) / seconds * 1e-9);
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
}

void Run(int64_t count) {
  const Array<float> weights = Magnitudes(count, 1.0f);  // taken as the masters' two planes
  const Array<float> moment1 = Magnitudes(count, 1e-3f);
  const Array<float> moment2 = Magnitudes(count, 1e-3f);
  const Array<float> gradient = Magnitudes(count, 1e-3f);
  const Array<double> sum = Allocate<double>(1);
  const Array<char> scratch = Allocate<char>(kSumOfSquaresScratchBytes);
  auto* hi = reinterpret_cast<uint16_t*>(weights.get());
  auto* lo = reinterpret_cast<int16_t*>(hi + count);
  const AdamWCoefficients coefficients({.step = 10});
  Measure("AdamW", 28 * count, [&] {
    return LaunchAdamW({hi, lo, moment1.get(), moment2.get(), gradient.get(), count}, coefficients,
                       /*rounds_gradient=*/true, nullptr);
  });
  Measure("sum of squares", 4 * count, [&] {
    return LaunchSumOfSquares(gradient.get(), count, sum.get(), scratch.get(), nullptr);
  });
  Measure("add", 12 * count,
          [&] { return LaunchAddTo(moment1.get(), gradient.get(), count, nullptr); });
  Measure("join", 8 * count,
          [&] { return LaunchJoinFloats(hi, lo, moment1.get(), count, nullptr); });
  Measure("round in place", 6 * count,
          [&] { return LaunchRoundToBfloat16InPlace(moment1.get(), count, nullptr); });
}

int Main(int argc, char** argv) {
  Run(int64_t{argc > 1 ? std::atoi(argv[1]) : 256} * kBlock);
  return 0;
}

}  // namespace
}  // namespace megatrain

int main(int argc, char** argv) { return megatrain::Main(argc, argv); }
