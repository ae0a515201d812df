#include "runtime/model_io/check_model.h"

#include <memory>

#include "absl/status/status.h"
#include "runtime/base/status_macros.h"
#include "runtime/config/model_layout.h"
#include "runtime/model_io/model_folder.h"
#include "runtime/model_io/tensor_matching.h"

namespace megatrain {

absl::StatusOr<ModelSummary> CheckModelFolder(const std::string& path, FileSystem& file_system) {
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<ModelFolder> folder,
                      ModelFolder::Open(path, file_system));
  ModelSummary summary;
  summary.config = folder->config();
  summary.parameter_count = folder->config().ParameterCount();
  summary.weight_bytes = folder->WeightBytes();
  const absl::Status trainable = CheckTrainable(folder->config());
  summary.trainable = trainable.ok();
  if (!trainable.ok()) {
    summary.untrainable_reason = std::string(trainable.message());
    return summary;
  }
  MT_RETURN_IF_ERROR(MatchTensors(*folder, MakeModelLayout(folder->config())).status());
  return summary;
}

}  // namespace megatrain
