// Measures the pipeline's own arithmetic on a GPU, which memory should bound:
// device_math_benchmark [million elements].

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <vector>

#include "runtime/kernels/adamw_kernel.h"
#include "runtime/kernels/benchmarks/measurement.h"
#include "runtime/kernels/gradient_math.h"
#include "runtime/kernels/split_float_kernel.h"
#include "runtime/optimizer/adamw_step.h"

namespace megatrain {
namespace {

constexpr int64_t kBlock = int64_t{1} << 20;  // elements

// The magnitudes of normal numbers, a block of them over and over.
DeviceArray<float> Magnitudes(int64_t count, float scale) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> block(kBlock);
  std::generate(block.begin(), block.end(), [&] { return std::abs(normal(random)); });
  return UploadRepeated(block, count);
}

void Run(int64_t count) {
  const DeviceArray<float> weights = Magnitudes(count, 1.0f);  // taken as the masters' two planes
  const DeviceArray<float> moment1 = Magnitudes(count, 1e-3f);
  const DeviceArray<float> moment2 = Magnitudes(count, 1e-3f);
  const DeviceArray<float> gradient = Magnitudes(count, 1e-3f);
  const DeviceArray<double> sum = AllocateArray<double>(1);
  const DeviceArray<char> scratch = AllocateArray<char>(kSumsOfSquaresScratchBytes);
  auto* hi = reinterpret_cast<uint16_t*>(weights.get());
  auto* lo = reinterpret_cast<int16_t*>(hi + count);
  const AdamWCoefficients coefficients({.step = 10});
  Measure("AdamW", 28 * count, [&] {
    return LaunchAdamW({hi, lo, moment1.get(), moment2.get(), gradient.get(),
                        GradientForm::kFloat32ToRound, count},
                       coefficients, nullptr);
  });
  Measure("sum of squares", 4 * count, [&] {
    return LaunchSumsOfSquares(gradient.get(), {{{.offset = 0, .count = count}}}, sum.get(),
                               scratch.get(), nullptr);
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
