// Rows picked from a table and given back to it, in order.

#ifndef RUNTIME_OPS_ROWS_H_
#define RUNTIME_OPS_ROWS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

namespace megatrain {

// out[i] = table[rows[i]]. Rows lie within the table; one dtype, both contiguous.
void GatherRows(const at::Tensor& table, std::span<const int32_t> rows, const at::Tensor& out);

// table = 0, then table[rows[i]] = values[i]. Rows differ from one another.
void ScatterRows(const at::Tensor& values, std::span<const int32_t> rows, const at::Tensor& table);

// table[rows[i]] += values[i], one after another in ascending i. The table is fp32, the values fp32
// or bf16.
void AddRows(const at::Tensor& values, std::span<const int32_t> rows, const at::Tensor& table);

}  // namespace megatrain

#endif  // RUNTIME_OPS_ROWS_H_
