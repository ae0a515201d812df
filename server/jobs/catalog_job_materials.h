// JobMaterials of the server's own data sets and models.

#ifndef SERVER_JOBS_CATALOG_JOB_MATERIALS_H_
#define SERVER_JOBS_CATALOG_JOB_MATERIALS_H_

#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/file_system.h"
#include "runtime/base/mutex.h"
#include "server/checkpoints/checkpoint_catalog.h"
#include "server/datasets/data_preparer.h"
#include "server/datasets/dataset_store.h"
#include "server/executor/executor.h"
#include "server/jobs/job_materials.h"
#include "server/jobs/job_record.h"
#include "server/models/model_store.h"

namespace megatrain {

class CatalogJobMaterials final : public JobMaterials {
 public:
  // All outlive it.
  struct Parts {
    CheckpointCatalog& checkpoints;
    DatasetStore& datasets;
    DataPreparer& preparer;
    ModelStore& models;
    FileSystem& disk;
    std::string output_folder;  // of results that are no version yet, on the disk of the models
  };

  explicit CatalogJobMaterials(const Parts& parts) : parts_(parts) {}

  // Removes output folders that belong to no job of `active`: a crash can leave some. Before
  // anything else.
  absl::Status RemoveStrays(const std::vector<JobRecord>& active);

  void Prepare(const v1::Job& job, PreparedCallback done) override;
  void StopPreparing(const std::string& job_name) override;
  std::string OutputFolder(const v1::Job& job) override;
  void Publish(const v1::Job& job, PublishedCallback done) override;
  void Discard(const v1::Job& job) override;

 private:
  absl::StatusOr<Prepared> PrepareNow(const v1::Job& job);
  // Whether what the job was trained to before is gone on from, or may be.
  absl::StatusOr<bool> GoesOn(const v1::Job& job);

  const Parts parts_;
  Mutex mutex_;
  std::set<std::string> stopped_ ABSL_GUARDED_BY(mutex_);  // jobs whose preparation is to end
  // One job is prepared while another's folders are discarded.
  Executor executor_{2};
};

}  // namespace megatrain

#endif  // SERVER_JOBS_CATALOG_JOB_MATERIALS_H_
