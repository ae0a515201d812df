#ifndef RUNTIME_SAFETENSORS_TENSOR_DTYPE_H_
#define RUNTIME_SAFETENSORS_TENSOR_DTYPE_H_

#include <cstdint>
#include <optional>
#include <string_view>

namespace megatrain {

// Element types of the safetensors format that fill whole bytes.
enum class TensorDtype {
  kBool,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kI16,
  kU16,
  kF16,
  kBf16,
  kI32,
  kU32,
  kF32,
  kI64,
  kU64,
  kF64,
  kC64,
};

// As the header spells it, such as "BF16".
const char* TensorDtypeName(TensorDtype dtype);
std::optional<TensorDtype> TensorDtypeFromName(std::string_view name);

// Of one element.
int64_t SizeBytes(TensorDtype dtype);

}  // namespace megatrain

#endif  // RUNTIME_SAFETENSORS_TENSOR_DTYPE_H_
