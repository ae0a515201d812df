#include "runtime/model_io/model_folder.h"

#include <map>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/safetensors/shard_index.h"

namespace megatrain {
namespace {

constexpr int64_t kMaxConfigBytes = int64_t{1} << 20;

absl::Status Annotate(const absl::Status& status, const std::string& where) {
  return absl::Status(status.code(), absl::StrCat(where, ": ", status.message()));
}

// That the index and the files' headers tell the same story.
absl::Status CheckAgainstIndex(const ShardIndex& index, const std::string& index_path,
                               const std::string& file_name, const SafetensorsHeader& header) {
  size_t listed = 0;
  for (const auto& [tensor, file] : index.file_of) {
    listed += file == file_name ? 1 : 0;
  }
  for (const TensorEntry& tensor : header.tensors) {
    auto found = index.file_of.find(tensor.name);
    if (found == index.file_of.end() || found->second != file_name) {
      return absl::InvalidArgumentError(absl::StrCat(index_path, ": does not say that ", file_name,
                                                     " holds the tensor \"", tensor.name,
                                                     "\", as it does"));
    }
  }
  if (listed == header.tensors.size()) {
    return absl::OkStatus();
  }
  std::map<std::string, bool> held;
  for (const TensorEntry& tensor : header.tensors) {
    held[tensor.name] = true;
  }
  for (const auto& [tensor, file] : index.file_of) {
    if (file == file_name && !held.contains(tensor)) {
      return absl::InvalidArgumentError(absl::StrCat(index_path, ": says that ", file_name,
                                                     " holds the tensor \"", tensor,
                                                     "\", but it does not"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelFolder>> ModelFolder::Open(const std::string& path,
                                                               FileSystem& file_system) {
  if (!file_system.Exists(path)) {
    return absl::NotFoundError(absl::StrCat("there is no model folder at ", path));
  }
  const std::string config_path = path + "/config.json";
  if (!file_system.Exists(config_path)) {
    return absl::NotFoundError(
        absl::StrCat(path, ": has no config.json, so it is no model folder"));
  }
  MT_ASSIGN_OR_RETURN(const std::string text, file_system.ReadFile(config_path, kMaxConfigBytes));
  auto config = ParseModelConfig(text);
  if (!config.ok()) {
    return Annotate(config.status(), path);
  }
  auto folder = std::unique_ptr<ModelFolder>(new ModelFolder(path, *std::move(config)));
  MT_RETURN_IF_ERROR(folder->OpenShards(file_system));
  return folder;
}

absl::Status ModelFolder::OpenShards(FileSystem& file_system) {
  // In transformers' order of preference.
  const std::string single = path_ + "/model.safetensors";
  if (file_system.Exists(single)) {
    MT_ASSIGN_OR_RETURN(auto shard, SafetensorsFile::Open(single));
    shards_.push_back(std::move(shard));
    return absl::OkStatus();
  }
  const std::string index = absl::StrCat(path_, "/", kShardIndexName);
  if (file_system.Exists(index)) {
    return OpenIndexedShards(index, file_system);
  }
  return absl::NotFoundError(
      absl::StrCat(path_, ": has neither model.safetensors nor ", kShardIndexName,
                   "; weights in other formats are not read, convert them to safetensors"));
}

absl::Status ModelFolder::OpenIndexedShards(const std::string& index_path,
                                            FileSystem& file_system) {
  has_index_ = true;
  MT_ASSIGN_OR_RETURN(const std::string text,
                      file_system.ReadFile(index_path, kMaxShardIndexBytes));
  auto index = ParseShardIndex(text);
  if (!index.ok()) {
    return Annotate(index.status(), index_path);
  }
  if (index->file_of.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(index_path, ": weight_map is empty"));
  }
  for (const std::string& name : index->Files()) {
    MT_ASSIGN_OR_RETURN(auto shard, SafetensorsFile::Open(absl::StrCat(path_, "/", name)));
    MT_RETURN_IF_ERROR(CheckAgainstIndex(*index, index_path, name, shard->header()));
    shards_.push_back(std::move(shard));
  }
  return absl::OkStatus();
}

int64_t ModelFolder::WeightBytes() const {
  int64_t bytes = 0;
  for (const auto& shard : shards_) {
    bytes += shard->header().DataBytes();
  }
  return bytes;
}

}  // namespace megatrain
