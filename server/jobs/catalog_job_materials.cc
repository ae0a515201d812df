#include "server/jobs/catalog_job_materials.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/config/model_config.h"

namespace megatrain {
namespace {

constexpr int64_t kMaxConfigBytes = int64_t{1} << 20;

// Folders of tokens are named by their fingerprints.
std::string FolderName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

absl::Status CatalogJobMaterials::RemoveStrays(const std::vector<JobRecord>& active) {
  MT_RETURN_IF_ERROR(parts_.disk.MakeFolders(parts_.output_folder));
  std::set<std::string> wanted;
  for (const JobRecord& record : active) {
    wanted.insert(OutputFolder(record.job));
  }
  MT_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                      parts_.disk.ListFolder(parts_.output_folder));
  for (const std::string& name : names) {
    const std::string folder = absl::StrCat(parts_.output_folder, "/", name);
    if (!wanted.contains(folder)) {
      MT_RETURN_IF_ERROR(parts_.disk.RemoveTree(folder));
    }
  }
  return absl::OkStatus();
}

void CatalogJobMaterials::Prepare(const v1::Job& job, PreparedCallback done) {
  {
    MutexLock lock(&mutex_);
    stopped_.erase(job.name());
  }
  executor_.Run([this, job, done = std::move(done)] { done(PrepareNow(job)); });
}

absl::StatusOr<JobMaterials::Prepared> CatalogJobMaterials::PrepareNow(const v1::Job& job) {
  {
    MutexLock lock(&mutex_);
    if (stopped_.contains(job.name())) {
      return absl::CancelledError("the preparation was stopped");
    }
  }
  MT_ASSIGN_OR_RETURN(const v1::ModelVersion model, parts_.models.Get(job.spec().model()));
  MT_ASSIGN_OR_RETURN(const bool goes_on, GoesOn(job));
  if (goes_on) {
    MT_RETURN_IF_ERROR(parts_.models.CheckUnchanged(model));  // it goes on with the same model
  }
  MT_ASSIGN_OR_RETURN(
      const std::string json,
      parts_.disk.ReadFile(absl::StrCat(model.path(), "/config.json"), kMaxConfigBytes));
  MT_ASSIGN_OR_RETURN(const ModelConfig config, ParseModelConfig(json));
  const v1::TrainOptions& train = job.spec().train();
  DatasetStore::PrepareRequest request{.run_name = job.name(),
                                       .dataset = job.spec().dataset(),
                                       .model_path = model.path(),
                                       .vocabulary_size = config.vocab_size,
                                       .max_sequence_length = train.max_sequence_length(),
                                       .skip_untrained_rows = train.on_bad_row() == "skip"};
  Prepared prepared;
  prepared.model_path = model.path();
  prepared.model_fingerprint = model.fingerprint();
  MT_ASSIGN_OR_RETURN(prepared.data_path, parts_.datasets.Prepare(request));
  prepared.data_fingerprint = FolderName(prepared.data_path);
  if (!job.spec().evaluation().dataset().empty()) {
    request.dataset = job.spec().evaluation().dataset();
    MT_ASSIGN_OR_RETURN(prepared.evaluation_data_path, parts_.datasets.Prepare(request));
    prepared.evaluation_data_fingerprint = FolderName(prepared.evaluation_data_path);
  }
  return prepared;
}

// The job itself knows only of checkpoints that it was told of.
absl::StatusOr<bool> CatalogJobMaterials::GoesOn(const v1::Job& job) {
  if (!job.last_checkpoint().empty() || !job.forked_from().empty()) {
    return true;
  }
  MT_ASSIGN_OR_RETURN(const auto newest, parts_.checkpoints.List(job.name(), 0, 1));
  return !newest.empty();
}

void CatalogJobMaterials::StopPreparing(const std::string& job_name) {
  {
    MutexLock lock(&mutex_);
    stopped_.insert(job_name);
  }
  parts_.preparer.Stop(job_name);
}

std::string CatalogJobMaterials::OutputFolder(const v1::Job& job) {
  return absl::StrCat(parts_.output_folder, "/", JobIdOf(job), "-", job.attempt());
}

void CatalogJobMaterials::Publish(const v1::Job& job, PublishedCallback done) {
  executor_.Run([this, job, done = std::move(done)] {
    const absl::StatusOr<v1::ModelVersion> version =
        parts_.models.Publish(job.spec().output(), OutputFolder(job), job.name());
    done(version.ok() ? absl::StatusOr<std::string>(version->name()) : version.status());
  });
}

void CatalogJobMaterials::Discard(const v1::Job& job) {
  executor_.Run([this, folder = OutputFolder(job)] {
    // What stays is removed at the next start; the disk's own error shows at the next write.
    parts_.disk.RemoveTree(folder).IgnoreError();
    parts_.disk.RemoveTree(folder + ".partial").IgnoreError();  // an export that was cut off
  });
}

}  // namespace megatrain
