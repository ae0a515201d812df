#include "runtime/safetensors/tensor_dtype.h"

#include <iterator>

namespace megatrain {
namespace {

struct Kind {
  TensorDtype dtype;
  const char* name;
  int64_t size_bytes;
};

// In the enumeration's order.
constexpr Kind kKinds[] = {
    {TensorDtype::kBool, "BOOL", 1},      {TensorDtype::kU8, "U8", 1},
    {TensorDtype::kI8, "I8", 1},          {TensorDtype::kF8E5M2, "F8_E5M2", 1},
    {TensorDtype::kF8E4M3, "F8_E4M3", 1}, {TensorDtype::kF8E8M0, "F8_E8M0", 1},
    {TensorDtype::kI16, "I16", 2},        {TensorDtype::kU16, "U16", 2},
    {TensorDtype::kF16, "F16", 2},        {TensorDtype::kBf16, "BF16", 2},
    {TensorDtype::kI32, "I32", 4},        {TensorDtype::kU32, "U32", 4},
    {TensorDtype::kF32, "F32", 4},        {TensorDtype::kI64, "I64", 8},
    {TensorDtype::kU64, "U64", 8},        {TensorDtype::kF64, "F64", 8},
    {TensorDtype::kC64, "C64", 8},
};
static_assert(std::size(kKinds) == static_cast<size_t>(TensorDtype::kC64) + 1);

}  // namespace

const char* TensorDtypeName(TensorDtype dtype) { return kKinds[static_cast<int>(dtype)].name; }

int64_t SizeBytes(TensorDtype dtype) { return kKinds[static_cast<int>(dtype)].size_bytes; }

std::optional<TensorDtype> TensorDtypeFromName(std::string_view name) {
  for (const Kind& kind : kKinds) {
    if (name == kind.name) {
      return kind.dtype;
    }
  }
  return std::nullopt;
}

}  // namespace megatrain
