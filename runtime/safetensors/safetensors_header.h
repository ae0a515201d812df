// The header of a safetensors file: a little-endian u64 with its length, then that many bytes of
// JSON, then the tensors' bytes without gaps.

#ifndef RUNTIME_SAFETENSORS_SAFETENSORS_HEADER_H_
#define RUNTIME_SAFETENSORS_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/safetensors/tensor_dtype.h"

namespace megatrain {

// One tensor of a file, row-major.
struct TensorEntry {
  std::string name;
  TensorDtype dtype = TensorDtype::kF32;
  std::vector<int64_t> shape;
  int64_t offset_bytes = 0;  // in the data, which begins after the header
  int64_t size_bytes = 0;

  int64_t element_count() const { return size_bytes / SizeBytes(dtype); }
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;             // by offset: they cover the data from byte 0 on
  std::map<std::string, std::string> metadata;  // `__metadata__`

  int64_t DataBytes() const;
};

// Bounds what a hostile file makes us build; 100,000 tensors fit.
inline constexpr int64_t kMaxSafetensorsHeaderBytes = int64_t{16} << 20;

// INVALID_ARGUMENT names the tensor whose dtype, shape or offsets are wrong, overlap others or
// leave a gap. The text alone: whether the file holds as many bytes is for its reader to check.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json);

// The first bytes of a file with these tensors: length and JSON, padded with spaces so that the
// data is 8-byte aligned. Takes names, dtypes and shapes and puts one after the other; offsets and
// sizes in `tensors` are not looked at. What Python's library would write for the same order.
std::string SerializeSafetensorsHeader(const SafetensorsHeader& header);

}  // namespace megatrain

#endif  // RUNTIME_SAFETENSORS_SAFETENSORS_HEADER_H_
