#include "runtime/kernels/swiglu.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "runtime/kernels/device_array_for_test.h"

namespace megatrain {
namespace {

struct Shape {
  int64_t tokens;
  int64_t width;
};

// Odd widths, widths of one tile and of several with a rest.
constexpr Shape kShapes[] = {{1, 1}, {7, 37}, {3, 300}, {5, 2048}, {3, 18944}, {600, 8}};

class SwigluTest : public testing::TestWithParam<ComputeDtype> {};

std::vector<float> MakeGateUp(ComputeDtype dtype, Shape shape) {
  return RandomNumbers(dtype, shape.tokens * 2 * shape.width, 21, 4);
}

std::vector<unsigned char> ForwardBytes(ComputeDtype dtype, Shape shape, int64_t shift_bytes) {
  DeviceNumbers gate_up(dtype, MakeGateUp(dtype, shape), shift_bytes);
  DeviceNumbers activated(dtype, shape.tokens * shape.width, shift_bytes);
  const absl::Status status = LaunchSwigluForward(gate_up.data(), activated.data(), shape.tokens,
                                                  shape.width, dtype, nullptr);
  EXPECT_TRUE(status.ok()) << status;
  return activated.DownloadBytes();
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

TEST_P(SwigluTest, ForwardAgreesWithFloat64) {
  for (const Shape shape : kShapes) {
    SCOPED_TRACE(testing::Message() << shape.tokens << " x " << shape.width);
    const std::vector<float> values = MakeGateUp(GetParam(), shape);
    std::vector<double> expected(shape.tokens * shape.width);
    for (int64_t i = 0; i < static_cast<int64_t>(expected.size()); ++i) {
      const int64_t at = i / shape.width * 2 * shape.width + i % shape.width;
      expected[i] = values[at] * Sigmoid(values[at]) * values[at + shape.width];
    }
    DeviceNumbers gate_up(GetParam(), values);
    DeviceNumbers activated(GetParam(), shape.tokens * shape.width);
    const absl::Status status = LaunchSwigluForward(gate_up.data(), activated.data(), shape.tokens,
                                                    shape.width, GetParam(), nullptr);
    ASSERT_TRUE(status.ok()) << status;
    ExpectNear(activated.Download(), expected, RelativeTolerance(GetParam()), 1e-7);
    EXPECT_EQ(ForwardBytes(GetParam(), shape, 64), activated.DownloadBytes());
  }
}

TEST_P(SwigluTest, FarGatesGiveNoNan) {
  DeviceNumbers gate_up(GetParam(), {-1e4f, 1e4f, -100, 100, 2, 2, 2, 2});
  DeviceNumbers activated(GetParam(), 4);
  const absl::Status status =
      LaunchSwigluForward(gate_up.data(), activated.data(), 1, 4, GetParam(), nullptr);
  ASSERT_TRUE(status.ok()) << status;
  ExpectNear(activated.Download(), {0, 2e4, 0, 200}, RelativeTolerance(GetParam()), 1e-30);
}

TEST_P(SwigluTest, BackwardAgreesWithFloat64) {
  for (const Shape shape : kShapes) {
    SCOPED_TRACE(testing::Message() << shape.tokens << " x " << shape.width);
    const std::vector<float> values = MakeGateUp(GetParam(), shape);
    const std::vector<float> gradients = RandomNumbers(GetParam(), shape.tokens * shape.width, 22);
    std::vector<double> expected(values.size());
    for (int64_t i = 0; i < static_cast<int64_t>(gradients.size()); ++i) {
      const int64_t at = i / shape.width * 2 * shape.width + i % shape.width;
      const double gate = values[at];
      const double sigmoid = Sigmoid(gate);
      expected[at] = gradients[i] * values[at + shape.width] * sigmoid * (1 + gate * (1 - sigmoid));
      expected[at + shape.width] = gradients[i] * gate * sigmoid;
    }
    std::vector<unsigned char> first_bytes;
    for (const int64_t shift_bytes : {0, 64}) {
      for (const bool again : {true, false}) {
        DeviceNumbers gate_up(GetParam(), values, shift_bytes);
        DeviceNumbers activated(GetParam(), gradients, shift_bytes);
        const std::vector<unsigned char> before = activated.DownloadBytes();
        const absl::Status status = LaunchSwigluBackward({.gate_up = gate_up.data(),
                                                          .activated_gradient = activated.data(),
                                                          .activates_again = again,
                                                          .tokens = shape.tokens,
                                                          .width = shape.width,
                                                          .dtype = GetParam()},
                                                         nullptr);
        ASSERT_TRUE(status.ok()) << status;
        // Near gate = -1.28 the derivative passes through zero, and its two terms cancel.
        ExpectNear(gate_up.Download(), expected, RelativeTolerance(GetParam()), 1e-5);
        EXPECT_EQ(activated.DownloadBytes(), again ? ForwardBytes(GetParam(), shape, 0) : before);
        if (first_bytes.empty()) {
          first_bytes = gate_up.DownloadBytes();
        }
        EXPECT_EQ(gate_up.DownloadBytes(), first_bytes);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, SwigluTest,
                         testing::Values(ComputeDtype::kFloat32, ComputeDtype::kBfloat16),
                         [](const auto& info) { return DtypeName(info.param); });

}  // namespace
}  // namespace megatrain
