#include "runtime/safetensors/shard_index.h"

#include <set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "runtime/base/bounded_json.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

using nlohmann::json;

constexpr std::string_view kSuffix = ".safetensors";

bool IsPlainSafetensorsName(std::string_view name) {
  return name.size() > kSuffix.size() && name.ends_with(kSuffix) && !name.starts_with('.') &&
         name.find('/') == name.npos && name.find('\0') == name.npos;
}

}  // namespace

std::vector<std::string> ShardIndex::Files() const {
  std::set<std::string> files;
  for (const auto& [tensor, file] : file_of) {
    files.insert(file);
  }
  return {files.begin(), files.end()};
}

absl::StatusOr<ShardIndex> ParseShardIndex(std::string_view text) {
  MT_ASSIGN_OR_RETURN(const json root, ParseBoundedJson(text, {.size_bytes = kMaxShardIndexBytes}));
  if (!root.is_object() || !root.contains("weight_map") || !root["weight_map"].is_object()) {
    return absl::InvalidArgumentError("weight_map is not an object");
  }
  ShardIndex index;
  for (const auto& [tensor, file] : root["weight_map"].items()) {
    if (!file.is_string() || !IsPlainSafetensorsName(file.get_ref<const std::string&>())) {
      return absl::InvalidArgumentError(
          absl::StrCat("weight_map: \"", tensor, "\" lies in ", file.dump(),
                       ", which is no name of a .safetensors file in this folder"));
    }
    index.file_of[tensor] = file.get<std::string>();
  }
  return index;
}

std::string SerializeShardIndex(const ShardIndex& index, int64_t total_size_bytes) {
  const json root = {{"metadata", {{"total_size", total_size_bytes}}},
                     {"weight_map", index.file_of}};
  return root.dump(2) + "\n";
}

}  // namespace megatrain
