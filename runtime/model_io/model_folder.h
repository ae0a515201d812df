#ifndef RUNTIME_MODEL_IO_MODEL_FOLDER_H_
#define RUNTIME_MODEL_IO_MODEL_FOLDER_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/file_system.h"
#include "runtime/config/model_config.h"
#include "runtime/safetensors/safetensors_file.h"

namespace megatrain {

// A Hugging Face model folder, opened for reading: config.json and the headers of its weight
// files. Holds no weights, and keeps the files open, so that they can be read when the folder has
// been renamed or removed. Thread-safe.
class ModelFolder {
 public:
  // Weights are model.safetensors or what model.safetensors.index.json names; every tensor lies in
  // exactly the file that the index says. Errors name file and tensor: NOT_FOUND for an absent
  // folder or file, DATA_LOSS for one cut short, INVALID_ARGUMENT or UNIMPLEMENTED as
  // ParseModelConfig and for a folder without safetensors.
  static absl::StatusOr<std::unique_ptr<ModelFolder>> Open(const std::string& path,
                                                           FileSystem& file_system);

  const std::string& path() const { return path_; }
  const ModelConfig& config() const { return config_; }

  // Sorted by path; at least one.
  const std::vector<std::unique_ptr<SafetensorsFile>>& shards() const { return shards_; }

  // The weights' files are listed by an index, be there one file or many.
  bool has_index() const { return has_index_; }

  // Of all tensors, without headers.
  int64_t WeightBytes() const;

 private:
  ModelFolder(std::string path, ModelConfig config)
      : path_(std::move(path)), config_(std::move(config)) {}

  absl::Status OpenShards(FileSystem& file_system);
  absl::Status OpenIndexedShards(const std::string& index_path, FileSystem& file_system);

  const std::string path_;
  const ModelConfig config_;
  std::vector<std::unique_ptr<SafetensorsFile>> shards_;
  bool has_index_ = false;
};

}  // namespace megatrain

#endif  // RUNTIME_MODEL_IO_MODEL_FOLDER_H_
