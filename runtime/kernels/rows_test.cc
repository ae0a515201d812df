#include "runtime/kernels/rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "runtime/kernels/device_array_for_test.h"

namespace megatrain {
namespace {

constexpr int64_t kTableRows = 61;
// Odd, and more than the threads of a block move at once.
constexpr int64_t kWidths[] = {1, 37, 96, 3584, 9000};

class RowsTest : public testing::TestWithParam<ComputeDtype> {};

TEST_P(RowsTest, GatherTakesTheNamedRows) {
  for (const int64_t width : kWidths) {
    SCOPED_TRACE(width);
    const std::vector<float> table = RandomNumbers(GetParam(), kTableRows * width, 41);
    const std::vector<int32_t> rows = {7, 0, 60, 7, 31};
    DeviceNumbers device_table(GetParam(), table);
    DeviceArray<int32_t> device_rows(rows);
    DeviceNumbers out(GetParam(), static_cast<int64_t>(rows.size()) * width);
    const RowIndices indices = {device_rows.data(), device_rows.count(), width, GetParam()};
    const absl::Status status = LaunchGatherRows(device_table.data(), indices, out.data(), nullptr);
    ASSERT_TRUE(status.ok()) << status;
    std::vector<float> expected;
    for (const int32_t row : rows) {
      expected.insert(expected.end(), table.begin() + row * width,
                      table.begin() + (row + 1) * width);
    }
    EXPECT_EQ(out.Download(), expected);
  }
}

TEST_P(RowsTest, ScatterWritesTheNamedRowsOnly) {
  for (const int64_t width : kWidths) {
    SCOPED_TRACE(width);
    const std::vector<int32_t> rows = {5, 0, 60, 2};
    const std::vector<float> values =
        RandomNumbers(GetParam(), static_cast<int64_t>(rows.size()) * width, 42);
    std::vector<float> expected = RandomNumbers(GetParam(), kTableRows * width, 43);
    DeviceNumbers out(GetParam(), expected);
    DeviceNumbers device_values(GetParam(), values);
    DeviceArray<int32_t> device_rows(rows);
    const RowIndices indices = {device_rows.data(), device_rows.count(), width, GetParam()};
    const absl::Status status =
        LaunchScatterRows(device_values.data(), indices, out.data(), nullptr);
    ASSERT_TRUE(status.ok()) << status;
    for (size_t i = 0; i < rows.size(); ++i) {
      std::copy_n(values.begin() + static_cast<int64_t>(i) * width, width,
                  expected.begin() + rows[i] * width);
    }
    EXPECT_EQ(out.Download(), expected);
  }
}

// Positions grouped by row, on the host.
struct Sorted {
  std::vector<int32_t> order, starts, rows;
};

Sorted Sort(const std::vector<int32_t>& row_of_position) {
  std::map<int32_t, std::vector<int32_t>> positions;
  for (size_t i = 0; i < row_of_position.size(); ++i) {
    positions[row_of_position[i]].push_back(static_cast<int32_t>(i));
  }
  Sorted sorted;
  for (const auto& [row, members] : positions) {
    sorted.starts.push_back(static_cast<int32_t>(sorted.order.size()));
    sorted.rows.push_back(row);
    sorted.order.insert(sorted.order.end(), members.begin(), members.end());
  }
  sorted.starts.push_back(static_cast<int32_t>(sorted.order.size()));
  return sorted;
}

TEST_P(RowsTest, AddGivesTheBitsOfOneByOneAddition) {
  std::vector<int32_t> row_of_position;
  for (int32_t i = 0; i < 200; ++i) {
    row_of_position.push_back(i % 3 == 0 ? 17 : i * 7 % 50);  // one row often, the others rarely
  }
  const Sorted sorted = Sort(row_of_position);
  for (const int64_t width : kWidths) {
    SCOPED_TRACE(width);
    const std::vector<float> values =
        RandomNumbers(GetParam(), static_cast<int64_t>(row_of_position.size()) * width, 44);
    std::vector<float> expected = RandomNumbers(ComputeDtype::kFloat32, kTableRows * width, 45);
    DeviceArray<float> table(expected);
    DeviceNumbers device_values(GetParam(), values);
    DeviceArray<int32_t> order(sorted.order), starts(sorted.starts), rows(sorted.rows);
    const SortedRows device_sorted = {order.data(), starts.data(), rows.data(), rows.count()};
    const absl::Status status = LaunchAddRows(device_values.data(), device_sorted, width,
                                              GetParam(), table.data(), nullptr);
    ASSERT_TRUE(status.ok()) << status;
    for (size_t position = 0; position < row_of_position.size(); ++position) {
      for (int64_t i = 0; i < width; ++i) {
        expected[row_of_position[position] * width + i] +=
            values[static_cast<int64_t>(position) * width + i];
      }
    }
    EXPECT_EQ(table.Download(), expected);
  }
}

TEST_P(RowsTest, NothingToDoIsFine) {
  EXPECT_TRUE(LaunchGatherRows(nullptr, {.width = 8, .dtype = GetParam()}, nullptr, nullptr).ok());
  EXPECT_TRUE(LaunchScatterRows(nullptr, {.width = 8, .dtype = GetParam()}, nullptr, nullptr).ok());
  EXPECT_TRUE(LaunchAddRows(nullptr, {}, 8, GetParam(), nullptr, nullptr).ok());
}

INSTANTIATE_TEST_SUITE_P(Dtypes, RowsTest,
                         testing::Values(ComputeDtype::kFloat32, ComputeDtype::kBfloat16),
                         [](const auto& info) { return DtypeName(info.param); });

}  // namespace
}  // namespace megatrain
