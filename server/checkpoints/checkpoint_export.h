// A checkpoint's weights as a model's folder.

#ifndef SERVER_CHECKPOINTS_CHECKPOINT_EXPORT_H_
#define SERVER_CHECKPOINTS_CHECKPOINT_EXPORT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "megatrain/v1/checkpoint.pb.h"
#include "megatrain/v1/model.pb.h"
#include "runtime/base/byte_progress.h"
#include "runtime/base/file_system.h"
#include "server/checkpoints/checkpoint_catalog.h"
#include "server/database/request_key.h"
#include "server/jobs/job_store.h"
#include "server/models/model_store.h"

namespace megatrain {

// Thread-safe; calls block on the disk.
class CheckpointExport {
 public:
  // All outlive it.
  struct Parts {
    CheckpointCatalog& catalog;
    JobStore& jobs;
    ModelStore& models;
    FileSystem& disk;
  };

  explicit CheckpointExport(const Parts& parts) : parts_(parts) {}

  // In the form of the model that the job trains, to a new folder below an allowed one; the result
  // has the checkpoint's name and that folder. FAILED_PRECONDITION with the reason
  // CHECKPOINT_DAMAGED; else as ModelStore::Export. An error of `progress` ends it.
  absl::StatusOr<v1::ModelVersion> Export(const RequestKey& key, const std::string& name,
                                          const std::string& path,
                                          const ByteProgress& progress = nullptr);

 private:
  absl::Status Write(const v1::Checkpoint& row, const std::string& model_path,
                     const std::string& folder, const ByteProgress& progress);

  const Parts parts_;
};

}  // namespace megatrain

#endif  // SERVER_CHECKPOINTS_CHECKPOINT_EXPORT_H_
