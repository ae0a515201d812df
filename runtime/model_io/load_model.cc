#include "runtime/model_io/load_model.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/model_io/element_conversion.h"
#include "runtime/model_io/tensor_matching.h"

namespace megatrain {
namespace {

constexpr int64_t kBufferBytes = int64_t{4} << 20;

// The padding between tensors is zeroed too.
void ZeroUnit(int unit, int64_t element_count, HostStore& store) {
  const HostStore::Access access = store.BeginAccess(unit);
  std::memset(store.hi(unit), 0, element_count * sizeof(uint16_t));
  std::memset(store.lo(unit), 0, element_count * sizeof(int16_t));
  std::memset(store.moment1(unit), 0, element_count * sizeof(float));
  std::memset(store.moment2(unit), 0, element_count * sizeof(float));
}

absl::Status LoadTensor(const SafetensorsFile& file, const MatchedTensor& matched,
                        std::span<char> buffer, HostStore& store) {
  const TensorEntry& entry = *matched.entry;
  const int64_t element_bytes = SizeBytes(entry.dtype);
  const HostStore::Access access = store.BeginAccess(matched.unit);
  for (int64_t offset = 0; offset < entry.size_bytes; offset += kBufferBytes) {
    const std::span<char> piece = buffer.first(std::min(kBufferBytes, entry.size_bytes - offset));
    MT_RETURN_IF_ERROR(file.Read(entry, offset, piece));
    const int64_t first = offset / element_bytes;
    const int64_t place = matched.tensor->offset_elements + first;
    const int64_t nonfinite = DecodeElements(
        entry.dtype, piece.data(), static_cast<int64_t>(piece.size()) / element_bytes,
        store.hi(matched.unit) + place, store.lo(matched.unit) + place);
    if (nonfinite >= 0) {
      return absl::InvalidArgumentError(absl::StrCat(file.path(), ": tensor \"", entry.name,
                                                     "\": element ", first + nonfinite,
                                                     " is not finite"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status LoadModel(const ModelFolder& folder, const ModelLayout& layout, HostStore& store) {
  MT_ASSIGN_OR_RETURN(const std::vector<MatchedShard> shards, MatchTensors(folder, layout));
  for (size_t unit = 0; unit < layout.units.size(); ++unit) {
    ZeroUnit(static_cast<int>(unit), layout.units[unit].element_count, store);
  }
  std::vector<char> buffer(kBufferBytes);
  for (const MatchedShard& shard : shards) {
    for (const MatchedTensor& matched : shard.tensors) {
      if (matched.tensor == nullptr || matched.repeats_token_table) {
        continue;
      }
      MT_RETURN_IF_ERROR(LoadTensor(*shard.file, matched, buffer, store));
    }
  }
  return absl::OkStatus();
}

}  // namespace megatrain
