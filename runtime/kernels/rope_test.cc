#include "runtime/kernels/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "runtime/kernels/device_array_for_test.h"

namespace megatrain {
namespace {

struct Shape {
  int64_t tokens;
  int head_count;
  int head_dim;
  int64_t row_stride;
};

// One head, heads that are no multiple of those a thread turns, halves that are no whole packs,
// and more tasks than a block has threads.
constexpr Shape kShapes[] = {
    {5, 1, 2, 2}, {7, 3, 6, 25}, {33, 32, 128, 36 * 128}, {4, 72, 256, 80 * 256}, {9, 5, 72, 512}};

constexpr int64_t kPositions = 50;

class RopeTest : public testing::TestWithParam<ComputeDtype> {};

std::vector<float2> MakeTable(int head_dim) {
  std::vector<float2> table(kPositions * head_dim / 2);
  for (int64_t i = 0; i < static_cast<int64_t>(table.size()); ++i) {
    const auto angle = static_cast<float>(i);
    table[i] = {std::cos(angle), std::sin(angle)};
  }
  return table;
}

std::vector<int32_t> MakePositions(int64_t tokens) {
  std::mt19937 generator(11);
  std::vector<int32_t> positions(tokens);
  for (int32_t& position : positions) {
    position = static_cast<int32_t>(generator() % kPositions);
  }
  return positions;
}

enum class Direction { kForward, kBackward };

DeviceNumbers* Turn(Direction direction, Shape shape, ComputeDtype dtype, DeviceNumbers* heads) {
  DeviceArray<float2> table(MakeTable(shape.head_dim));
  DeviceArray<int32_t> positions(MakePositions(shape.tokens));
  const Rotation rotation = {.heads = heads->data(),
                             .tokens = shape.tokens,
                             .row_stride = shape.row_stride,
                             .head_count = shape.head_count,
                             .head_dim = shape.head_dim,
                             .table = table.data(),
                             .positions = positions.data(),
                             .dtype = dtype};
  const absl::Status status = direction == Direction::kForward
                                  ? LaunchRotateForward(rotation, nullptr)
                                  : LaunchRotateBackward(rotation, nullptr);
  EXPECT_TRUE(status.ok()) << status;
  CheckCuda(cudaDeviceSynchronize(), "rotate");
  return heads;
}

std::vector<double> Expected(Direction direction, Shape shape, const std::vector<float>& heads) {
  const std::vector<float2> table = MakeTable(shape.head_dim);
  const std::vector<int32_t> positions = MakePositions(shape.tokens);
  const int half = shape.head_dim / 2;
  std::vector<double> expected(heads.begin(), heads.end());
  for (int64_t token = 0; token < shape.tokens; ++token) {
    for (int head = 0; head < shape.head_count; ++head) {
      for (int i = 0; i < half; ++i) {
        const int64_t first = token * shape.row_stride + head * shape.head_dim + i;
        const float2 angle = table[positions[token] * half + i];
        const double sine = direction == Direction::kForward ? angle.y : -angle.y;
        const double a = heads[first];
        const double b = heads[first + half];
        expected[first] = a * angle.x - b * sine;
        expected[first + half] = b * angle.x + a * sine;
      }
    }
  }
  return expected;
}

TEST_P(RopeTest, AgreesWithFloat64AndLeavesTheRestAlone) {
  for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
    for (const Shape shape : kShapes) {
      SCOPED_TRACE(testing::Message()
                   << shape.tokens << " tokens, " << shape.head_count << " x " << shape.head_dim);
      const std::vector<float> heads =
          RandomNumbers(GetParam(), shape.tokens * shape.row_stride, 12);
      DeviceNumbers turned(GetParam(), heads);
      ExpectNear(Turn(direction, shape, GetParam(), &turned)->Download(),
                 Expected(direction, shape, heads), RelativeTolerance(GetParam()), 1e-6);
      DeviceNumbers elsewhere(GetParam(), heads, 64);
      EXPECT_EQ(Turn(direction, shape, GetParam(), &elsewhere)->DownloadBytes(),
                turned.DownloadBytes());
      const std::vector<float> result = turned.Download();
      for (int64_t i = 0; i < static_cast<int64_t>(heads.size()); ++i) {
        if (i % shape.row_stride >= int64_t{shape.head_count} * shape.head_dim) {
          ASSERT_EQ(result[i], heads[i]) << "behind the heads, element " << i;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, RopeTest,
                         testing::Values(ComputeDtype::kFloat32, ComputeDtype::kBfloat16),
                         [](const auto& info) { return DtypeName(info.param); });

}  // namespace
}  // namespace megatrain
