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

// Whether a file's tensor goes into the store.
bool IsLoaded(const MatchedTensor& matched) {
  return matched.tensor != nullptr && !matched.repeats_token_table;
}

// One load of one store.
class Loader {
 public:
  Loader(HostStore& store, const ByteProgress& progress, int64_t all_bytes)
      : store_(store), progress_(progress), all_bytes_(all_bytes), buffer_(kBufferBytes) {}

  absl::Status LoadTensor(const SafetensorsFile& file, const MatchedTensor& matched) {
    const TensorEntry& entry = *matched.entry;
    const int64_t element_bytes = SizeBytes(entry.dtype);
    const HostStore::Access access = store_.BeginAccess(matched.unit);
    for (int64_t offset = 0; offset < entry.size_bytes; offset += kBufferBytes) {
      const std::span<char> piece =
          std::span(buffer_).first(std::min(kBufferBytes, entry.size_bytes - offset));
      MT_RETURN_IF_ERROR(file.Read(entry, offset, piece));
      const int64_t first = offset / element_bytes;
      const int64_t place = matched.tensor->offset_elements + first;
      const int64_t nonfinite = DecodeElements(
          entry.dtype, piece.data(), static_cast<int64_t>(piece.size()) / element_bytes,
          store_.hi(matched.unit) + place, store_.lo(matched.unit) + place);
      if (nonfinite >= 0) {
        return absl::InvalidArgumentError(absl::StrCat(file.path(), ": tensor \"", entry.name,
                                                       "\": element ", first + nonfinite,
                                                       " is not finite"));
      }
      done_bytes_ += static_cast<int64_t>(piece.size());
      MT_RETURN_IF_ERROR(TellProgress(progress_, done_bytes_, all_bytes_));
    }
    return absl::OkStatus();
  }

 private:
  HostStore& store_;
  const ByteProgress& progress_;
  const int64_t all_bytes_;
  int64_t done_bytes_ = 0;
  std::vector<char> buffer_;
};

int64_t LoadedBytes(const std::vector<MatchedShard>& shards) {
  int64_t bytes = 0;
  for (const MatchedShard& shard : shards) {
    for (const MatchedTensor& matched : shard.tensors) {
      bytes += IsLoaded(matched) ? matched.entry->size_bytes : 0;
    }
  }
  return bytes;
}

}  // namespace

absl::Status LoadModel(const ModelFolder& folder, const ModelLayout& layout, HostStore& store,
                       const ByteProgress& progress) {
  MT_ASSIGN_OR_RETURN(const std::vector<MatchedShard> shards, MatchTensors(folder, layout));
  const bool is_zero = store.untouched();
  for (size_t unit = 0; unit < layout.units.size() && !is_zero; ++unit) {
    ZeroUnit(static_cast<int>(unit), layout.units[unit].element_count, store);
  }
  Loader loader(store, progress, LoadedBytes(shards));
  for (const MatchedShard& shard : shards) {
    for (const MatchedTensor& matched : shard.tensors) {
      if (IsLoaded(matched)) {
        MT_RETURN_IF_ERROR(loader.LoadTensor(*shard.file, matched));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace megatrain
