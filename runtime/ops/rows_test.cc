#include "runtime/ops/rows.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <vector>

namespace megatrain {
namespace {

TEST(Rows, GatherTakesRowsInOrder) {
  for (const c10::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor table = at::arange(12, dtype).view({4, 3});
    const at::Tensor out = at::empty({3, 3}, dtype);
    GatherRows(table, std::vector<int32_t>{3, 0, 3}, out);
    EXPECT_EQ(out.to(at::kInt).view({9}).sum().item().toInt(), 30 + 3 + 30);
    EXPECT_EQ(out[1][2].item().toFloat(), 2.0F);
    EXPECT_EQ(out[2][0].item().toFloat(), 9.0F);
  }
}

TEST(Rows, ScatterWritesRowsAndZeroElsewhere) {
  const at::Tensor values = at::arange(6, at::kBFloat16).view({2, 3}).add(1);
  const at::Tensor table = at::arange(12, at::kBFloat16).view({4, 3});
  ScatterRows(values, std::vector<int32_t>{1, 3}, table);
  EXPECT_EQ(table[0].abs().sum().item().toFloat(), 0.0F);
  EXPECT_EQ(table[1][0].item().toFloat(), 1.0F);
  EXPECT_EQ(table[2].abs().sum().item().toFloat(), 0.0F);
  EXPECT_EQ(table[3][2].item().toFloat(), 6.0F);
}

// 1e8 + 1 + 1 is 1e8 in fp32, 1 + 1 + 1e8 is not: the order of additions is part of the contract.
TEST(Rows, AddSumsRepeatedRowsInAscendingOrder) {
  for (const c10::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    at::Tensor values = at::zeros({3, 2}, dtype).add_(3);
    values[0].fill_(1e8);
    const at::Tensor large = values[0][0].to(at::kFloat);
    const at::Tensor first = at::zeros({2, 2}, at::kFloat);
    AddRows(values, std::vector<int32_t>{1, 1, 1}, first);
    EXPECT_EQ(first[1][0].item().toFloat(), (large.item().toFloat() + 3.0F) + 3.0F);
    EXPECT_EQ(first[0].abs().sum().item().toFloat(), 0.0F);
    AddRows(values, std::vector<int32_t>{0, 1, 0}, first);
    EXPECT_EQ(first[0][1].item().toFloat(), large.item().toFloat() + 3.0F);
  }
}

}  // namespace
}  // namespace megatrain
