#ifndef RUNTIME_SAFETENSORS_SHARD_INDEX_H_
#define RUNTIME_SAFETENSORS_SHARD_INDEX_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace megatrain {

inline constexpr char kShardIndexName[] = "model.safetensors.index.json";
inline constexpr int64_t kMaxShardIndexBytes = int64_t{16} << 20;

// model.safetensors.index.json: which file of the folder holds which tensor. File names follow no
// scheme, so only this map says.
struct ShardIndex {
  std::map<std::string, std::string> file_of;  // by tensor name

  std::vector<std::string> Files() const;  // each once, sorted
};

// INVALID_ARGUMENT names the entry that is no plain name ending in ".safetensors": a folder's
// index reaches no other folder and no other format.
absl::StatusOr<ShardIndex> ParseShardIndex(std::string_view json);

// The file's text for `index`, whose tensors hold `total_size_bytes` in all.
std::string SerializeShardIndex(const ShardIndex& index, int64_t total_size_bytes);

}  // namespace megatrain

#endif  // RUNTIME_SAFETENSORS_SHARD_INDEX_H_
