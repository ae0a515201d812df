// Prints the memory throughput of the element-wise kernels at the sizes of a 7B model: bytes that
// a kernel must move over the median of its times.

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/kernels/bias.h"
#include "runtime/kernels/cross_entropy.h"
#include "runtime/kernels/cuda_status.h"
#include "runtime/kernels/rms_norm.h"
#include "runtime/kernels/rope.h"
#include "runtime/kernels/rows.h"
#include "runtime/kernels/swiglu.h"

namespace megatrain {
namespace {

constexpr int64_t kTokens = 8192;
constexpr int64_t kWidth = 3584;
constexpr int64_t kMlpWidth = 18944;
constexpr int64_t kVocab = 152064;
constexpr int64_t kLossRows = 2048;
constexpr int kHeads = 28;
constexpr int kKvHeads = 4;
constexpr int kHeadDim = 128;
constexpr int64_t kQkvWidth = int64_t{kHeads + 2 * kKvHeads} * kHeadDim;
constexpr ComputeDtype kDtype = ComputeDtype::kBfloat16;
constexpr int kTimes = 20;

void Check(const absl::Status& status) {
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    std::exit(1);
  }
}

void Check(cudaError_t error, const char* what) { Check(CudaStatus(error, what)); }

struct Free {
  void operator()(void* memory) const { cudaFree(memory); }
};
using Memory = std::unique_ptr<void, Free>;

Memory Allocate(int64_t size_bytes) {
  void* memory = nullptr;
  Check(cudaMalloc(&memory, size_bytes), "cudaMalloc");
  return Memory(memory);
}

// Normal numbers, one block of them over and over. T is float or __nv_bfloat16.
template <typename T>
Memory RandomNumbers(int64_t count) {
  constexpr int64_t kBlock = 1 << 20;
  static const std::vector<T> block = [] {
    std::mt19937_64 generator(1);
    std::normal_distribution<float> normal;
    std::vector<T> values(kBlock);
    std::generate(values.begin(), values.end(), [&] { return static_cast<T>(normal(generator)); });
    return values;
  }();
  Memory memory = Allocate(count * static_cast<int64_t>(sizeof(T)));
  for (int64_t at = 0; at < count; at += kBlock) {
    Check(cudaMemcpy(static_cast<T*>(memory.get()) + at, block.data(),
                     std::min(kBlock, count - at) * sizeof(T), cudaMemcpyHostToDevice),
          "upload");
  }
  return memory;
}

template <typename T>
Memory Upload(const std::vector<T>& values) {
  Memory memory = Allocate(static_cast<int64_t>(values.size() * sizeof(T)));
  Check(cudaMemcpy(memory.get(), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
        "upload");
  return memory;
}

// 0, step, 2 step, ... modulo `modulus`.
std::vector<int32_t> Multiples(int64_t count, int64_t step, int64_t modulus) {
  std::vector<int32_t> values(count);
  for (int64_t i = 0; i < count; ++i) {
    values[i] = static_cast<int32_t>(i * step % modulus);
  }
  return values;
}

void Measure(const char* name, int64_t moved_bytes, const std::function<absl::Status()>& launch) {
  cudaEvent_t begin, end;
  Check(cudaEventCreate(&begin), "cudaEventCreate");
  Check(cudaEventCreate(&end), "cudaEventCreate");
  Check(launch());  // warm up
  std::array<float, kTimes> milliseconds;
  for (float& time : milliseconds) {
    Check(cudaEventRecord(begin), "cudaEventRecord");
    Check(launch());
    Check(cudaEventRecord(end), "cudaEventRecord");
    Check(cudaEventSynchronize(end), name);
    Check(cudaEventElapsedTime(&time, begin, end), "cudaEventElapsedTime");
  }
  std::nth_element(milliseconds.begin(), milliseconds.begin() + kTimes / 2, milliseconds.end());
  const double median_seconds = milliseconds[kTimes / 2] * 1e-3;
  std::printf("%-20s %9.1f us %8.0f GB/s\n", name, median_seconds * 1e6,
              static_cast<double>(moved_bytes) / median_seconds * 1e-9);
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
}

void MeasureRmsNorm() {
  const Memory x = RandomNumbers<__nv_bfloat16>(kTokens * kWidth);
  const Memory weight = RandomNumbers<__nv_bfloat16>(kWidth);
  const Memory normed = Allocate(kTokens * kWidth * 2);
  const Memory normed_gradient = RandomNumbers<__nv_bfloat16>(kTokens * kWidth);
  const Memory x_gradient = RandomNumbers<__nv_bfloat16>(kTokens * kWidth);
  const Memory weight_gradient = RandomNumbers<float>(kWidth);
  const Memory inverse_rms = Allocate(kTokens * 4);
  const Memory scratch = Allocate(RmsNormBackwardScratchBytes(kTokens, kWidth));
  const RmsNormForward forward = {.x = x.get(),
                                  .weight = weight.get(),
                                  .normed = normed.get(),
                                  .inverse_rms = static_cast<float*>(inverse_rms.get()),
                                  .rows = kTokens,
                                  .width = kWidth,
                                  .epsilon = 1e-6f,
                                  .dtype = kDtype};
  Measure("rms_norm forward", 2 * kTokens * kWidth * 2,
          [&] { return LaunchRmsNormForward(forward, nullptr); });
  const RmsNormBackward backward = {.x = x.get(),
                                    .weight = weight.get(),
                                    .inverse_rms = static_cast<float*>(inverse_rms.get()),
                                    .normed_gradient = normed_gradient.get(),
                                    .x_gradient = x_gradient.get(),
                                    .normed = normed.get(),
                                    .weight_gradient = static_cast<float*>(weight_gradient.get()),
                                    .scratch = scratch.get(),
                                    .rows = kTokens,
                                    .width = kWidth,
                                    .dtype = kDtype};
  Measure("rms_norm backward", 5 * kTokens * kWidth * 2,
          [&] { return LaunchRmsNormBackward(backward, nullptr); });
}

void MeasureRotation() {
  const Memory qkv = RandomNumbers<__nv_bfloat16>(kTokens * kQkvWidth);
  const Memory table = RandomNumbers<float>(kTokens * kHeadDim);
  const Memory positions = Upload(Multiples(kTokens, 1, 1024));
  const Rotation rotation = {.heads = qkv.get(),
                             .tokens = kTokens,
                             .row_stride = kQkvWidth,
                             .head_count = kHeads + kKvHeads,
                             .head_dim = kHeadDim,
                             .table = static_cast<const float2*>(table.get()),
                             .positions = static_cast<const int32_t*>(positions.get()),
                             .dtype = kDtype};
  Measure("rope forward", 2 * kTokens * (kHeads + kKvHeads) * kHeadDim * 2,
          [&] { return LaunchRotateForward(rotation, nullptr); });
}

void MeasureSwiglu() {
  const Memory gate_up = RandomNumbers<__nv_bfloat16>(kTokens * 2 * kMlpWidth);
  const Memory activated = RandomNumbers<__nv_bfloat16>(kTokens * kMlpWidth);
  Measure("swiglu forward", 3 * kTokens * kMlpWidth * 2, [&] {
    return LaunchSwigluForward(gate_up.get(), activated.get(), kTokens, kMlpWidth, kDtype, nullptr);
  });
  Measure("swiglu backward", 6 * kTokens * kMlpWidth * 2, [&] {
    return LaunchSwigluBackward(gate_up.get(), activated.get(), kTokens, kMlpWidth, kDtype,
                                nullptr);
  });
}

void MeasureBias() {
  const Memory gradient = RandomNumbers<__nv_bfloat16>(kTokens * kQkvWidth);
  const Memory bias_gradient = RandomNumbers<float>(kQkvWidth);
  const Memory scratch = Allocate(BiasBackwardScratchBytes(kTokens, kQkvWidth));
  const BiasBackward backward = {.y_gradient = gradient.get(),
                                 .rows = kTokens,
                                 .width = kQkvWidth,
                                 .row_stride = kQkvWidth,
                                 .bias_gradient = static_cast<float*>(bias_gradient.get()),
                                 .scratch = scratch.get(),
                                 .dtype = kDtype};
  Measure("bias backward", kTokens * kQkvWidth * 2,
          [&] { return LaunchBiasBackward(backward, nullptr); });
}

void MeasureCrossEntropy() {
  const Memory logits = RandomNumbers<float>(kLossRows * kVocab);
  const Memory targets = Upload(Multiples(kLossRows, 7919, kVocab));
  const Memory losses = Allocate(kLossRows * 4);
  const Memory gradient = Allocate(kLossRows * kVocab * 2);
  const CrossEntropy arguments = {.logits = static_cast<const float*>(logits.get()),
                                  .targets = static_cast<const int32_t*>(targets.get()),
                                  .losses = static_cast<float*>(losses.get()),
                                  .gradient = gradient.get(),
                                  .gradient_stride = kVocab,
                                  .scale = 1e-4f,
                                  .rows = kLossRows,
                                  .vocab = kVocab,
                                  .dtype = kDtype};
  Measure("cross_entropy", kLossRows * kVocab * (4 + 2),
          [&] { return LaunchCrossEntropy(arguments, nullptr); });
  const Memory result = Allocate(sizeof(HeadResult));
  Measure("sum_losses", kLossRows * 4, [&] {
    return LaunchSumLosses(arguments.losses, kLossRows, static_cast<HeadResult*>(result.get()),
                           nullptr);
  });
}

// Every token's row; for AddRows each of 2,048 rows four times.
void MeasureRows() {
  constexpr int64_t kSegments = kTokens / 4;
  const Memory table = RandomNumbers<__nv_bfloat16>(kVocab * kWidth);
  const Memory values = RandomNumbers<__nv_bfloat16>(kTokens * kWidth);
  const Memory rows = Upload(Multiples(kTokens, 7919, kVocab));
  const Memory starts = Upload(Multiples(kSegments + 1, 4, kTokens + 1));
  const Memory order = Upload(Multiples(kTokens, kSegments + 1, kTokens));
  const Memory sums = RandomNumbers<float>(kVocab * kWidth);
  const RowIndices indices = {static_cast<const int32_t*>(rows.get()), kTokens, kWidth, kDtype};
  Measure("gather_rows", 2 * kTokens * kWidth * 2,
          [&] { return LaunchGatherRows(table.get(), indices, values.get(), nullptr); });
  Measure("scatter_rows", 2 * kTokens * kWidth * 2,
          [&] { return LaunchScatterRows(values.get(), indices, table.get(), nullptr); });
  const SortedRows sorted = {static_cast<const int32_t*>(order.get()),
                             static_cast<const int32_t*>(starts.get()), indices.rows, kSegments};
  Measure("add_rows", kTokens * kWidth * 2 + kSegments * kWidth * 8, [&] {
    return LaunchAddRows(values.get(), sorted, kWidth, kDtype, static_cast<float*>(sums.get()),
                         nullptr);
  });
}

}  // namespace
}  // namespace megatrain

int main() {
  megatrain::MeasureRmsNorm();
  megatrain::MeasureRotation();
  megatrain::MeasureSwiglu();
  megatrain::MeasureBias();
  megatrain::MeasureCrossEntropy();
  megatrain::MeasureRows();
  return 0;
}
