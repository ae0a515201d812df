#include "runtime/kernels/join_rows.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include "runtime/kernels/device_array_for_test.h"

namespace megatrain {
namespace {

TEST(JoinRows, WritesBothSidesAndLeavesTheRestAlone) {
  for (const int64_t width : {4, 64, 1040}) {
    constexpr int64_t kRows = 37;
    const int64_t stride = 2 * width + 12;
    std::vector<int32_t> left(kRows * width);
    std::iota(left.begin(), left.end(), 1);
    std::vector<int32_t> right(kRows * width);
    std::iota(right.begin(), right.end(), 1'000'000);
    DeviceArray<int32_t> device_left(left);
    DeviceArray<int32_t> device_right(right, 16);
    // The columns begin 4 numbers into a row; the array is -1 throughout.
    DeviceArray<int32_t> target(kRows * stride, 48);
    ASSERT_EQ(LaunchJoinRows({.left = device_left.data(),
                              .right = device_right.data(),
                              .target = target.data() + 4,
                              .stride_bytes = stride * 4,
                              .width_bytes = width * 4,
                              .rows = kRows},
                             nullptr),
              absl::OkStatus());
    std::vector<int32_t> expected(kRows * stride, -1);
    for (int64_t i = 0; i < kRows * width; ++i) {
      expected[i / width * stride + 4 + i % width] = left[i];
      expected[i / width * stride + 4 + width + i % width] = right[i];
    }
    EXPECT_TRUE(target.Download() == expected) << "width " << width;
  }
}

}  // namespace
}  // namespace megatrain
