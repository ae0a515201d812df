#include "runtime/kernels/qkv_gradient.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "runtime/kernels/device_array_for_test.h"

namespace megatrain {
namespace {

struct Shape {
  int64_t tokens;
  int turning_heads;
  int head_count;
  int head_dim;
  int64_t row_stride;
};

// One head, halves that are no whole packs, more rows than row groups, more tasks than a block has
// threads, and gaps between rows.
constexpr Shape kShapes[] = {{1, 1, 1, 2, 2},
                             {7, 2, 3, 6, 25},
                             {33, 32, 36, 128, 36 * 128},
                             {1100, 4, 6, 64, 6 * 64},
                             {529, 40, 80, 256, 81 * 256},
                             {9, 5, 7, 72, 512}};

constexpr int64_t kPositions = 50;

class QkvGradientTest : public testing::TestWithParam<ComputeDtype> {};

// Device memory of one call.
class Call {
 public:
  Call(ComputeDtype dtype, Shape shape, const std::vector<float>& gradient,
       const std::vector<float>& bias_gradient, int64_t shift_bytes = 0)
      : dtype_(dtype),
        shape_(shape),
        gradient_(dtype, gradient, shift_bytes),
        bias_gradient_(bias_gradient, shift_bytes),
        scratch_(BiasBackwardScratchBytes(shape.tokens, Width()), shift_bytes),
        table_(Table()),
        positions_(Positions()) {}

  int64_t Width() const { return int64_t{shape_.head_count} * shape_.head_dim; }

  Rotation TurningHeads() {
    return {.heads = gradient_.data(),
            .tokens = shape_.tokens,
            .row_stride = shape_.row_stride,
            .head_count = shape_.turning_heads,
            .head_dim = shape_.head_dim,
            .table = table_.data(),
            .positions = positions_.data(),
            .dtype = dtype_};
  }

  void RotateAndSum() {
    const absl::Status status = LaunchRotateBackwardAndSum({.rotation = TurningHeads(),
                                                            .head_count = shape_.head_count,
                                                            .bias_gradient = bias_gradient_.data(),
                                                            .scratch = scratch_.data()},
                                                           nullptr);
    EXPECT_TRUE(status.ok()) << status;
    CheckCuda(cudaDeviceSynchronize(), "rotate and sum");
  }

  void RotateAlone() {
    const absl::Status status = LaunchRotateBackward(TurningHeads(), nullptr);
    EXPECT_TRUE(status.ok()) << status;
    CheckCuda(cudaDeviceSynchronize(), "rotate");
  }

  // What `gradient`, turned back, adds to the bias's gradient, in float64.
  std::vector<double> Sums(const std::vector<float>& gradient) const {
    std::vector<double> sums(Width());
    for (int64_t token = 0; token < shape_.tokens; ++token) {
      for (int head = 0; head < shape_.head_count; ++head) {
        AddHead(&gradient[token * shape_.row_stride + head * shape_.head_dim], token, head,
                &sums[head * shape_.head_dim]);
      }
    }
    return sums;
  }

  DeviceNumbers& gradient() { return gradient_; }
  DeviceArray<float>& bias_gradient() { return bias_gradient_; }

 private:
  std::vector<float2> Table() const {
    std::vector<float2> table(kPositions * shape_.head_dim / 2);
    for (int64_t i = 0; i < static_cast<int64_t>(table.size()); ++i) {
      const auto angle = static_cast<float>(i);
      table[i] = {std::cos(angle), std::sin(angle)};
    }
    return table;
  }

  std::vector<int32_t> Positions() const {
    std::vector<int32_t> positions(shape_.tokens);
    for (int64_t i = 0; i < shape_.tokens; ++i) {
      positions[i] = static_cast<int32_t>(i * 7 % kPositions);
    }
    return positions;
  }

  void AddHead(const float* values, int64_t token, int head, double* sums) const {
    const int half = shape_.head_dim / 2;
    const std::vector<float2> table = Table();
    const float2* angles = &table[Positions()[token] * half];
    for (int i = 0; i < half; ++i) {
      const bool turns = head < shape_.turning_heads;
      const double cosine = turns ? angles[i].x : 1;
      const double sine = turns ? -angles[i].y : 0;
      sums[i] += values[i] * cosine - values[i + half] * sine;
      sums[i + half] += values[i + half] * cosine + values[i] * sine;
    }
  }

  const ComputeDtype dtype_;
  const Shape shape_;
  DeviceNumbers gradient_;
  DeviceArray<float> bias_gradient_;
  DeviceArray<char> scratch_;
  DeviceArray<float2> table_;
  DeviceArray<int32_t> positions_;
};

TEST_P(QkvGradientTest, TurnsLikeTheRotationAloneAndAddsTheSumsOfColumns) {
  for (const Shape shape : kShapes) {
    SCOPED_TRACE(testing::Message()
                 << shape.tokens << " tokens, " << shape.head_count << " x " << shape.head_dim);
    const std::vector<float> gradient =
        RandomNumbers(GetParam(), shape.tokens * shape.row_stride, 31);
    const std::vector<float> before =
        RandomNumbers(ComputeDtype::kFloat32, int64_t{shape.head_count} * shape.head_dim, 32);
    Call call(GetParam(), shape, gradient, before);
    std::vector<double> expected = call.Sums(gradient);
    for (size_t i = 0; i < expected.size(); ++i) {
      expected[i] += before[i];
    }
    call.RotateAndSum();
    ExpectNear(call.bias_gradient().Download(), expected, 1e-5, 4e-5);

    Call alone(GetParam(), shape, gradient, before);
    alone.RotateAlone();
    EXPECT_EQ(call.gradient().DownloadBytes(), alone.gradient().DownloadBytes());

    Call elsewhere(GetParam(), shape, gradient, before, 64);
    elsewhere.RotateAndSum();
    EXPECT_EQ(elsewhere.gradient().DownloadBytes(), call.gradient().DownloadBytes());
    EXPECT_EQ(elsewhere.bias_gradient().Download(), call.bias_gradient().Download());
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, QkvGradientTest,
                         testing::Values(ComputeDtype::kFloat32, ComputeDtype::kBfloat16),
                         [](const auto& info) { return DtypeName(info.param); });

}  // namespace
}  // namespace megatrain
