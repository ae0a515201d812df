// Prints the memory throughput of the element-wise kernels at the sizes of a 7B model: bytes that
// a kernel must move over the median of its times.

#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "runtime/kernels/benchmarks/measurement.h"
#include "runtime/kernels/cross_entropy.h"
#include "runtime/kernels/qkv_gradient.h"
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

// Normal numbers, a block of them over and over. T is float or __nv_bfloat16.
template <typename T>
DeviceArray<T> RandomNumbers(int64_t count) {
  static const std::vector<T> block = [] {
    std::mt19937_64 generator(1);
    std::normal_distribution<float> normal;
    std::vector<T> values(1 << 20);
    std::generate(values.begin(), values.end(), [&] { return static_cast<T>(normal(generator)); });
    return values;
  }();
  return UploadRepeated(block, count);
}

// 0, step, 2 step, ... modulo `modulus`.
DeviceArray<int32_t> Multiples(int64_t count, int64_t step, int64_t modulus) {
  std::vector<int32_t> values(count);
  for (int64_t i = 0; i < count; ++i) {
    values[i] = static_cast<int32_t>(i * step % modulus);
  }
  return UploadRepeated(values, count);
}

void MeasureRmsNorm() {
  const auto x = RandomNumbers<__nv_bfloat16>(kTokens * kWidth);
  const auto weight = RandomNumbers<__nv_bfloat16>(kWidth);
  const auto normed = AllocateArray<__nv_bfloat16>(kTokens * kWidth);
  const auto normed_gradient = RandomNumbers<__nv_bfloat16>(kTokens * kWidth);
  const auto x_gradient = RandomNumbers<__nv_bfloat16>(kTokens * kWidth);
  const auto weight_gradient = RandomNumbers<float>(kWidth);
  const auto inverse_rms = AllocateArray<float>(kTokens);
  const auto scratch = AllocateArray<char>(RmsNormBackwardScratchBytes(kTokens, kWidth));
  const RmsNormForward forward = {.x = x.get(),
                                  .weight = weight.get(),
                                  .normed = normed.get(),
                                  .inverse_rms = inverse_rms.get(),
                                  .rows = kTokens,
                                  .width = kWidth,
                                  .epsilon = 1e-6f,
                                  .dtype = kDtype};
  Measure("rms_norm forward", 2 * kTokens * kWidth * 2,
          [&] { return LaunchRmsNormForward(forward, nullptr); });
  const RmsNormBackward backward = {.x = x.get(),
                                    .weight = weight.get(),
                                    .inverse_rms = inverse_rms.get(),
                                    .normed_gradient = normed_gradient.get(),
                                    .x_gradient = x_gradient.get(),
                                    .normed = normed.get(),
                                    .weight_gradient = weight_gradient.get(),
                                    .scratch = scratch.get(),
                                    .rows = kTokens,
                                    .width = kWidth,
                                    .dtype = kDtype};
  Measure("rms_norm backward", 5 * kTokens * kWidth * 2,
          [&] { return LaunchRmsNormBackward(backward, nullptr); });
}

void MeasureRotation() {
  const auto qkv = RandomNumbers<__nv_bfloat16>(kTokens * kQkvWidth);
  const auto table = RandomNumbers<float>(kTokens * kHeadDim);
  const DeviceArray<int32_t> positions = Multiples(kTokens, 1, 1024);
  const Rotation rotation = {.heads = qkv.get(),
                             .tokens = kTokens,
                             .row_stride = kQkvWidth,
                             .head_count = kHeads + kKvHeads,
                             .head_dim = kHeadDim,
                             .table = reinterpret_cast<const float2*>(table.get()),
                             .positions = positions.get(),
                             .dtype = kDtype};
  Measure("rope forward", 2 * kTokens * (kHeads + kKvHeads) * kHeadDim * 2,
          [&] { return LaunchRotateForward(rotation, nullptr); });
  const auto bias_gradient = RandomNumbers<float>(kQkvWidth);
  const auto scratch = AllocateArray<char>(BiasBackwardScratchBytes(kTokens, kQkvWidth));
  const QkvGradient gradient = {.rotation = rotation,
                                .head_count = kHeads + 2 * kKvHeads,
                                .bias_gradient = bias_gradient.get(),
                                .scratch = scratch.get()};
  Measure("rope backward, bias", kTokens * (2 * (kHeads + kKvHeads) + kKvHeads) * kHeadDim * 2,
          [&] { return LaunchRotateBackwardAndSum(gradient, nullptr); });
}

void MeasureSwiglu() {
  const auto gate_up = RandomNumbers<__nv_bfloat16>(kTokens * 2 * kMlpWidth);
  const auto activated = RandomNumbers<__nv_bfloat16>(kTokens * kMlpWidth);
  Measure("swiglu forward", 3 * kTokens * kMlpWidth * 2, [&] {
    return LaunchSwigluForward(gate_up.get(), activated.get(), kTokens, kMlpWidth, kDtype, nullptr);
  });
  for (const bool again : {true, false}) {
    Measure(again ? "swiglu backward" : "swiglu backward, activated kept",
            (again ? 6 : 5) * kTokens * kMlpWidth * 2, [&] {
              return LaunchSwigluBackward({.gate_up = gate_up.get(),
                                           .activated_gradient = activated.get(),
                                           .activates_again = again,
                                           .tokens = kTokens,
                                           .width = kMlpWidth,
                                           .dtype = kDtype},
                                          nullptr);
            });
  }
}

void MeasureCrossEntropy() {
  const auto logits = RandomNumbers<float>(kLossRows * kVocab);
  const DeviceArray<int32_t> targets = Multiples(kLossRows, 7919, kVocab);
  const auto losses = AllocateArray<float>(kLossRows);
  const auto gradient = AllocateArray<__nv_bfloat16>(kLossRows * kVocab);
  const CrossEntropy arguments = {.logits = logits.get(),
                                  .targets = targets.get(),
                                  .losses = losses.get(),
                                  .gradient = gradient.get(),
                                  .gradient_stride = kVocab,
                                  .scale = 1e-4f,
                                  .rows = kLossRows,
                                  .vocab = kVocab,
                                  .dtype = kDtype};
  Measure("cross_entropy", kLossRows * kVocab * (4 + 2),
          [&] { return LaunchCrossEntropy(arguments, nullptr); });
  const auto result = AllocateArray<HeadResult>(1);
  Measure("sum_losses", kLossRows * 4,
          [&] { return LaunchSumLosses(arguments.losses, kLossRows, result.get(), nullptr); });
}

// Every token's row; for AddRows each of 2,048 rows four times.
void MeasureRows() {
  constexpr int64_t kSegments = kTokens / 4;
  const auto table = RandomNumbers<__nv_bfloat16>(kVocab * kWidth);
  const auto values = RandomNumbers<__nv_bfloat16>(kTokens * kWidth);
  const DeviceArray<int32_t> rows = Multiples(kTokens, 7919, kVocab);
  const DeviceArray<int32_t> starts = Multiples(kSegments + 1, 4, kTokens + 1);
  const DeviceArray<int32_t> order = Multiples(kTokens, kSegments + 1, kTokens);
  const auto sums = RandomNumbers<float>(kVocab * kWidth);
  const RowIndices indices = {rows.get(), kTokens, kWidth, kDtype};
  Measure("gather_rows", 2 * kTokens * kWidth * 2,
          [&] { return LaunchGatherRows(table.get(), indices, values.get(), nullptr); });
  Measure("scatter_rows", 2 * kTokens * kWidth * 2,
          [&] { return LaunchScatterRows(values.get(), indices, table.get(), nullptr); });
  const SortedRows sorted = {order.get(), starts.get(), indices.rows, kSegments};
  Measure("add_rows", kTokens * kWidth * 2 + kSegments * kWidth * 8,
          [&] { return LaunchAddRows(values.get(), sorted, kWidth, kDtype, sums.get(), nullptr); });
}

}  // namespace
}  // namespace megatrain

int main() {
  megatrain::MeasureRmsNorm();
  megatrain::MeasureRotation();
  megatrain::MeasureSwiglu();
  megatrain::MeasureCrossEntropy();
  megatrain::MeasureRows();
  return 0;
}
