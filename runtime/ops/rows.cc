#include "runtime/ops/rows.h"

#include <c10/util/BFloat16.h>

#include <cstring>

#include "runtime/base/check.h"

namespace megatrain {
namespace {

int64_t RowBytes(const at::Tensor& table) {
  MT_CHECK(table.dim() == 2 && table.is_contiguous());
  return table.size(1) * static_cast<int64_t>(table.element_size());
}

template <typename Value>
void AddRowsOf(const Value* values, std::span<const int32_t> rows, int64_t width, float* table) {
  for (const int32_t row : rows) {
    float* target = table + row * width;
    for (int64_t i = 0; i < width; ++i) {
      target[i] += static_cast<float>(values[i]);
    }
    values += width;
  }
}

}  // namespace

void GatherRows(const at::Tensor& table, std::span<const int32_t> rows, const at::Tensor& out) {
  const int64_t bytes = RowBytes(table);
  const auto* from = static_cast<const char*>(table.const_data_ptr());
  auto* to = static_cast<char*>(out.mutable_data_ptr());
  for (const int32_t row : rows) {
    std::memcpy(to, from + row * bytes, bytes);
    to += bytes;
  }
}

void ScatterRows(const at::Tensor& values, std::span<const int32_t> rows, const at::Tensor& table) {
  const int64_t bytes = RowBytes(table);
  const auto* from = static_cast<const char*>(values.const_data_ptr());
  auto* to = static_cast<char*>(table.mutable_data_ptr());
  std::memset(to, 0, table.size(0) * bytes);
  for (const int32_t row : rows) {
    std::memcpy(to + row * bytes, from, bytes);
    from += bytes;
  }
}

void AddRows(const at::Tensor& values, std::span<const int32_t> rows, const at::Tensor& table) {
  MT_CHECK(values.is_contiguous() && table.is_contiguous());
  auto* target = table.mutable_data_ptr<float>();
  if (values.scalar_type() == at::kFloat) {
    AddRowsOf(values.const_data_ptr<float>(), rows, table.size(1), target);
  } else {
    AddRowsOf(values.const_data_ptr<at::BFloat16>(), rows, table.size(1), target);
  }
}

}  // namespace megatrain
