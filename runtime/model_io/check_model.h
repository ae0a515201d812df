#ifndef RUNTIME_MODEL_IO_CHECK_MODEL_H_
#define RUNTIME_MODEL_IO_CHECK_MODEL_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/base/file_system.h"
#include "runtime/config/model_config.h"

namespace megatrain {

// What a model folder holds.
struct ModelSummary {
  ModelConfig config;
  int64_t parameter_count = 0;  // a tied tensor once
  int64_t weight_bytes = 0;     // of all tensors in its files
  bool trainable = false;
  std::string untrainable_reason;  // empty when trainable
};

// Checks a folder without loading its weights: config, index, headers, file sizes; and, when the
// engine can train it, every tensor's name, shape and dtype and the tie. Errors as
// ModelFolder::Open and MatchTensors.
absl::StatusOr<ModelSummary> CheckModelFolder(const std::string& path, FileSystem& file_system);

}  // namespace megatrain

#endif  // RUNTIME_MODEL_IO_CHECK_MODEL_H_
