#include "runtime/kernels/rms_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "runtime/kernels/device_array_for_test.h"

namespace megatrain {
namespace {

constexpr float kEpsilon = 1e-5f;

struct Shape {
  int64_t rows;
  int64_t width;
};

// Single elements, odd widths, more rows than row groups, the widest of usual blocks and of all.
constexpr Shape kShapes[] = {{1, 1},     {3, 33},   {1100, 40}, {540, 2056},
                             {37, 3584}, {5, 8192}, {2, 16384}, {3, kMaxRmsNormWidth}};

class RmsNormTest : public testing::TestWithParam<ComputeDtype> {};

struct ForwardResult {
  std::vector<float> normed;
  std::vector<unsigned char> normed_bytes;
  std::vector<float> inverse_rms;
};

ForwardResult RunForward(ComputeDtype dtype, Shape shape, const std::vector<float>& x,
                         const std::vector<float>& weight, int64_t shift_bytes) {
  DeviceNumbers device_x(dtype, x, shift_bytes);
  DeviceNumbers device_weight(dtype, weight, shift_bytes);
  DeviceNumbers normed(dtype, shape.rows * shape.width, shift_bytes);
  DeviceArray<float> inverse_rms(shape.rows, shift_bytes);
  const absl::Status status = LaunchRmsNormForward({.x = device_x.data(),
                                                    .weight = device_weight.data(),
                                                    .normed = normed.data(),
                                                    .inverse_rms = inverse_rms.data(),
                                                    .rows = shape.rows,
                                                    .width = shape.width,
                                                    .epsilon = kEpsilon,
                                                    .dtype = dtype},
                                                   nullptr);
  EXPECT_TRUE(status.ok()) << status;
  return {normed.Download(), normed.DownloadBytes(), inverse_rms.Download()};
}

TEST_P(RmsNormTest, ForwardAgreesWithFloat64) {
  for (const Shape shape : kShapes) {
    SCOPED_TRACE(testing::Message() << shape.rows << " x " << shape.width);
    const std::vector<float> x = RandomNumbers(GetParam(), shape.rows * shape.width, 1, 3);
    const std::vector<float> weight = RandomNumbers(GetParam(), shape.width, 2);
    std::vector<double> expected(x.size());
    std::vector<double> expected_inverse_rms(shape.rows);
    for (int64_t row = 0; row < shape.rows; ++row) {
      double squares = 0;
      for (int64_t i = 0; i < shape.width; ++i) {
        squares += std::pow(x[row * shape.width + i], 2);
      }
      const double r = 1 / std::sqrt(squares / static_cast<double>(shape.width) + kEpsilon);
      expected_inverse_rms[row] = r;
      for (int64_t i = 0; i < shape.width; ++i) {
        expected[row * shape.width + i] = x[row * shape.width + i] * r * weight[i];
      }
    }
    const ForwardResult result = RunForward(GetParam(), shape, x, weight, 0);
    ExpectNear(result.normed, expected, RelativeTolerance(GetParam()), 1e-6);
    ExpectNear(result.inverse_rms, expected_inverse_rms, 2e-6, 0);
    const ForwardResult again = RunForward(GetParam(), shape, x, weight, 64);
    EXPECT_EQ(again.normed_bytes, result.normed_bytes);
    EXPECT_EQ(again.inverse_rms, result.inverse_rms);
  }
}

TEST_P(RmsNormTest, ForwardInPlaceWithoutStatistics) {
  const Shape shape = {9, 96};
  const std::vector<float> x = RandomNumbers(GetParam(), shape.rows * shape.width, 3);
  const std::vector<float> weight = RandomNumbers(GetParam(), shape.width, 4);
  DeviceNumbers device_x(GetParam(), x);
  DeviceNumbers device_weight(GetParam(), weight);
  const absl::Status status = LaunchRmsNormForward({.x = device_x.data(),
                                                    .weight = device_weight.data(),
                                                    .normed = device_x.data(),
                                                    .inverse_rms = nullptr,
                                                    .rows = shape.rows,
                                                    .width = shape.width,
                                                    .epsilon = kEpsilon,
                                                    .dtype = GetParam()},
                                                   nullptr);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(device_x.DownloadBytes(), RunForward(GetParam(), shape, x, weight, 0).normed_bytes);
}

class RmsNormMarks {
 public:
  RmsNormMarks(ComputeDtype dtype, Shape shape)
      : dtype_(dtype),
        shape_(shape),
        x_(RandomNumbers(dtype, shape.rows * shape.width, 13)),
        weight_(dtype, RandomNumbers(dtype, shape.width, 14)),
        normed_(dtype, shape.rows * shape.width) {}

  // What the mark is after a pass over x with `value` at one more place.
  int32_t MarkWith(int64_t row, int64_t column, float value) {
    x_[row * shape_.width + column] = value;
    DeviceNumbers x(dtype_, x_);
    EXPECT_TRUE(LaunchRmsNormForward({.x = x.data(),
                                      .weight = weight_.data(),
                                      .normed = normed_.data(),
                                      .inverse_rms = nullptr,
                                      .mark = mark_.data(),
                                      .rows = shape_.rows,
                                      .width = shape_.width,
                                      .epsilon = kEpsilon,
                                      .dtype = dtype_},
                                     nullptr)
                    .ok());
    return mark_.Download()[0];
  }

 private:
  const ComputeDtype dtype_;
  const Shape shape_;
  std::vector<float> x_;
  DeviceNumbers weight_;
  DeviceNumbers normed_;
  DeviceArray<int32_t> mark_{std::vector<int32_t>{-1}};
};

// A smaller row takes a larger one's place.
TEST_P(RmsNormTest, ForwardMarksTheFirstRowThatIsNotFinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const int64_t width : {int64_t{191}, int64_t{192}, int64_t{12000}, kMaxRmsNormWidth}) {
    SCOPED_TRACE(width);
    RmsNormMarks marks(GetParam(), {50, width});
    EXPECT_EQ(marks.MarkWith(30, width - 1, 1), -1);
    EXPECT_EQ(marks.MarkWith(0, 5, 2e19f), -1) << "finite, though its square is not a float";
    EXPECT_EQ(marks.MarkWith(49, width - 1, std::numeric_limits<float>::quiet_NaN()), 49);
    EXPECT_EQ(marks.MarkWith(17, 0, -kInfinity), 17);
    EXPECT_EQ(marks.MarkWith(18, width / 2, kInfinity), 17);
  }
}

// What a backward pass reads, on the host.
struct BackwardCase {
  Shape shape;
  std::vector<float> x, weight, normed_gradient, residual, weight_gradient, inverse_rms;
};

BackwardCase MakeBackwardCase(ComputeDtype dtype, Shape shape) {
  const int64_t count = shape.rows * shape.width;
  BackwardCase input = {.shape = shape,
                        .x = RandomNumbers(dtype, count, 5, 3),
                        .weight = RandomNumbers(dtype, shape.width, 6),
                        .normed_gradient = RandomNumbers(dtype, count, 7),
                        .residual = RandomNumbers(dtype, count, 8),
                        .weight_gradient = RandomNumbers(ComputeDtype::kFloat32, shape.width, 9)};
  input.inverse_rms = RunForward(dtype, shape, input.x, input.weight, 0).inverse_rms;
  return input;
}

struct BackwardResult {
  std::vector<float> x_gradient;
  std::vector<unsigned char> x_gradient_bytes, normed_bytes;
  std::vector<float> weight_gradient;
};

BackwardResult RunBackward(ComputeDtype dtype, const BackwardCase& input, int64_t shift_bytes,
                           bool norms_again = true) {
  const auto [rows, width] = input.shape;
  DeviceNumbers x(dtype, input.x, shift_bytes);
  DeviceNumbers weight(dtype, input.weight, shift_bytes);
  DeviceNumbers normed_gradient(dtype, input.normed_gradient, shift_bytes);
  DeviceNumbers x_gradient(dtype, input.residual, shift_bytes);
  DeviceNumbers normed(dtype, rows * width, shift_bytes);
  DeviceArray<float> inverse_rms(input.inverse_rms, shift_bytes);
  DeviceArray<float> weight_gradient(input.weight_gradient, shift_bytes);
  DeviceArray<char> scratch(RmsNormBackwardScratchBytes(rows, width), shift_bytes);
  const absl::Status status =
      LaunchRmsNormBackward({.x = x.data(),
                             .weight = weight.data(),
                             .inverse_rms = inverse_rms.data(),
                             .normed_gradient = normed_gradient.data(),
                             .x_gradient = x_gradient.data(),
                             .normed = norms_again ? normed.data() : nullptr,
                             .weight_gradient = weight_gradient.data(),
                             .scratch = scratch.data(),
                             .rows = rows,
                             .width = width,
                             .dtype = dtype},
                            nullptr);
  EXPECT_TRUE(status.ok()) << status;
  return {x_gradient.Download(), x_gradient.DownloadBytes(), normed.DownloadBytes(),
          weight_gradient.Download()};
}

// The gradients of x and of the weight, by the chain rule in float64.
std::pair<std::vector<double>, std::vector<double>> Expected(const BackwardCase& input) {
  const auto [rows, width] = input.shape;
  std::vector<double> x_gradient(input.residual.begin(), input.residual.end());
  std::vector<double> weight_gradient(input.weight_gradient.begin(), input.weight_gradient.end());
  for (int64_t row = 0; row < rows; ++row) {
    const double r = input.inverse_rms[row];
    const float* x = &input.x[row * width];
    const float* g = &input.normed_gradient[row * width];
    double dot = 0;
    for (int64_t i = 0; i < width; ++i) {
      dot += static_cast<double>(g[i]) * input.weight[i] * x[i];
      weight_gradient[i] += g[i] * (x[i] * r);
    }
    for (int64_t i = 0; i < width; ++i) {
      x_gradient[row * width + i] +=
          r * g[i] * input.weight[i] - r * r * r * x[i] * dot / static_cast<double>(width);
    }
  }
  return {x_gradient, weight_gradient};
}

TEST_P(RmsNormTest, BackwardAgreesWithFloat64) {
  for (const Shape shape : kShapes) {
    SCOPED_TRACE(testing::Message() << shape.rows << " x " << shape.width);
    const BackwardCase input = MakeBackwardCase(GetParam(), shape);
    const auto [x_gradient, weight_gradient] = Expected(input);
    const BackwardResult result = RunBackward(GetParam(), input, 0);
    ExpectNear(result.x_gradient, x_gradient, RelativeTolerance(GetParam()), 1e-5);
    ExpectNear(result.weight_gradient, weight_gradient, 1e-5, 1e-4);
    EXPECT_EQ(result.normed_bytes,
              RunForward(GetParam(), shape, input.x, input.weight, 0).normed_bytes);
    const BackwardResult again = RunBackward(GetParam(), input, 64);
    EXPECT_EQ(again.x_gradient_bytes, result.x_gradient_bytes);
    EXPECT_EQ(again.normed_bytes, result.normed_bytes);
    EXPECT_EQ(again.weight_gradient, result.weight_gradient);
    const BackwardResult kept = RunBackward(GetParam(), input, 0, /*norms_again=*/false);
    EXPECT_EQ(kept.x_gradient_bytes, result.x_gradient_bytes);
    EXPECT_EQ(kept.weight_gradient, result.weight_gradient);
  }
}

TEST_P(RmsNormTest, RefusesRowsThatABlockCannotHold) {
  const RmsNormForward forward = {
      .rows = 1, .width = kMaxRmsNormWidth + 1, .epsilon = kEpsilon, .dtype = GetParam()};
  EXPECT_EQ(LaunchRmsNormForward(forward, nullptr).code(), absl::StatusCode::kInvalidArgument);
  const RmsNormBackward backward = {.rows = 1, .width = kMaxRmsNormWidth + 1, .dtype = GetParam()};
  EXPECT_EQ(LaunchRmsNormBackward(backward, nullptr).code(), absl::StatusCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, RmsNormTest,
                         testing::Values(ComputeDtype::kFloat32, ComputeDtype::kBfloat16),
                         [](const auto& info) { return DtypeName(info.param); });

}  // namespace
}  // namespace megatrain
