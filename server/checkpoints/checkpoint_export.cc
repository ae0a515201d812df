#include "server/checkpoints/checkpoint_export.h"

#include <memory>

#include "runtime/base/status_macros.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/checkpoint_weights.h"
#include "runtime/config/model_layout.h"
#include "runtime/model_io/export_model.h"
#include "runtime/model_io/model_folder.h"

namespace megatrain {

absl::StatusOr<v1::ModelVersion> CheckpointExport::Export(const RequestKey& key,
                                                          const std::string& name,
                                                          const std::string& path,
                                                          const ByteProgress& progress) {
  MT_ASSIGN_OR_RETURN(const CheckpointInUse row, parts_.catalog.UseUndamaged(name));
  MT_ASSIGN_OR_RETURN(const JobRecord record, parts_.jobs.Get(JobOfCheckpoint(name)));
  const std::string& model = record.job.spec().model();
  MT_ASSIGN_OR_RETURN(const v1::ModelVersion version, parts_.models.Get(model));
  return parts_.models.ExportOther(
      key, model,
      {name,
       [&](const std::string& folder) { return Write(*row, version.path(), folder, progress); }},
      path);
}

absl::Status CheckpointExport::Write(const v1::Checkpoint& row, const std::string& model_path,
                                     const std::string& folder, const ByteProgress& progress) {
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<ModelFolder> source,
                      ModelFolder::Open(model_path, parts_.disk));
  const ModelLayout layout = MakeModelLayout(source->config());
  MT_ASSIGN_OR_RETURN(const Checkpoint checkpoint, OpenCheckpoint(row.path(), parts_.disk));
  const absl::StatusOr<std::unique_ptr<CheckpointWeights>> weights =
      CheckpointWeights::Open(checkpoint, layout, parts_.disk, progress);
  if (absl::IsDataLoss(weights.status())) {
    const std::string damage(weights.status().message());
    MT_RETURN_IF_ERROR(parts_.catalog.MarkDamaged(row, damage));
    return CheckpointDamaged(row.name(), damage);
  }
  MT_RETURN_IF_ERROR(weights.status());
  return ExportModel(*source, layout, **weights, folder, parts_.disk, progress);
}

}  // namespace megatrain
