#include "runtime/kernels/bias.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "runtime/kernels/device_array_for_test.h"

namespace megatrain {
namespace {

struct Shape {
  int64_t rows;
  int64_t width;
  int64_t row_stride;
};

// Odd widths, more rows than row groups, more columns than a block's, and gaps between rows.
constexpr Shape kShapes[] = {
    {1, 1, 1}, {3, 33, 40}, {1000, 24, 24}, {257, 4608, 4608}, {40, 1032, 2048}};

class BiasTest : public testing::TestWithParam<ComputeDtype> {};

std::vector<float> RunKernel(ComputeDtype dtype, Shape shape, const std::vector<float>& gradient,
                             const std::vector<float>& before, int64_t shift_bytes) {
  DeviceNumbers y_gradient(dtype, gradient, shift_bytes);
  DeviceArray<float> bias_gradient(before, shift_bytes);
  DeviceArray<char> scratch(BiasBackwardScratchBytes(shape.rows, shape.width), shift_bytes);
  const absl::Status status = LaunchBiasBackward({.y_gradient = y_gradient.data(),
                                                  .rows = shape.rows,
                                                  .width = shape.width,
                                                  .row_stride = shape.row_stride,
                                                  .bias_gradient = bias_gradient.data(),
                                                  .scratch = scratch.data(),
                                                  .dtype = dtype},
                                                 nullptr);
  EXPECT_TRUE(status.ok()) << status;
  return bias_gradient.Download();
}

TEST_P(BiasTest, AddsTheSumsOfColumns) {
  for (const Shape shape : kShapes) {
    SCOPED_TRACE(testing::Message() << shape.rows << " x " << shape.width);
    const std::vector<float> gradient =
        RandomNumbers(GetParam(), shape.rows * shape.row_stride, 31);
    const std::vector<float> before = RandomNumbers(ComputeDtype::kFloat32, shape.width, 32);
    std::vector<double> expected(before.begin(), before.end());
    for (int64_t row = 0; row < shape.rows; ++row) {
      for (int64_t i = 0; i < shape.width; ++i) {
        expected[i] += gradient[row * shape.row_stride + i];
      }
    }
    const std::vector<float> result = RunKernel(GetParam(), shape, gradient, before, 0);
    ExpectNear(result, expected, 1e-5, 2e-5);
    EXPECT_EQ(RunKernel(GetParam(), shape, gradient, before, 64), result);
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, BiasTest,
                         testing::Values(ComputeDtype::kFloat32, ComputeDtype::kBfloat16),
                         [](const auto& info) { return DtypeName(info.param); });

}  // namespace
}  // namespace megatrain
