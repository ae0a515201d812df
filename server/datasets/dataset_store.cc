#include "server/datasets/dataset_store.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "server/database/request_log.h"
#include "server/datasets/fingerprint.h"
#include "server/errors/errors.h"
#include "server/files/hash_file.h"
#include "server/names/resource_name.h"
#include "server/resources/timestamp.h"

namespace megatrain {
namespace {

constexpr char kCollection[] = "datasets";
constexpr char kSkip[] = "skip";

absl::Status CheckFinalized(const v1::Upload& upload) {
  if (upload.finalized()) return absl::OkStatus();
  return PreconditionFailed(
      upload.name(), "UPLOAD_NOT_FINALIZED",
      absl::StrCat(upload.name(), " is not finalized: call FinalizeUpload first"));
}

absl::Status CheckReady(const v1::Dataset& dataset) {
  if (dataset.state() == v1::DATASET_STATE_READY) return absl::OkStatus();
  const std::string why = dataset.state() == v1::DATASET_STATE_FAILED
                              ? absl::StrCat("was refused: ", dataset.failure())
                              : std::string("is still being checked: wait until it is READY");
  return PreconditionFailed(dataset.name(), "DATASET_NOT_READY",
                            absl::StrCat(dataset.name(), " ", why));
}

// Tokens are named by what was uploaded: they must not be made of anything else.
absl::Status CheckUnchanged(const v1::Dataset& dataset, const std::string& path) {
  MT_ASSIGN_OR_RETURN(const std::string sha256, HashFile(path));
  if (sha256 == dataset.sha256()) return absl::OkStatus();
  return WithReason(absl::DataLossError(absl::StrCat(
                        "the file of ", dataset.name(), ", ", path,
                        ", has changed since it was uploaded (SHA-256 ", sha256, ", not ",
                        dataset.sha256(), "): put it back, or upload it as another data set")),
                    "DATASET_CHANGED", {{"dataset", dataset.name()}});
}

}  // namespace

DatasetStore::DatasetStore(const Parts& parts, Options options)
    : parts_(parts), options_(std::move(options)) {}

DatasetStore::~DatasetStore() { parts_.preparer.StopAll(); }

absl::StatusOr<std::unique_ptr<DatasetStore>> DatasetStore::Open(const Parts& parts,
                                                                 Options options) {
  std::unique_ptr<DatasetStore> store(new DatasetStore(parts, std::move(options)));
  MT_RETURN_IF_ERROR(store->RemoveLeftovers());
  MT_RETURN_IF_ERROR(store->ResumeChecks());
  return store;
}

absl::Status DatasetStore::RemoveLeftovers() {
  FileSystem& disk = parts_.disk;
  MT_RETURN_IF_ERROR(disk.RemoveTree(options_.staging_folder));
  for (const std::string& folder :
       {options_.staging_folder, options_.datasets_folder, options_.prepared_folder}) {
    MT_RETURN_IF_ERROR(disk.MakeFolders(folder));
  }
  MT_ASSIGN_OR_RETURN(const std::vector<std::string> ids,
                      disk.ListFolder(options_.datasets_folder));
  for (const std::string& id : ids) {
    const absl::StatusOr<v1::Dataset> dataset = Get(absl::StrCat(kCollection, "/", id));
    if (!dataset.ok() && !absl::IsNotFound(dataset.status())) return dataset.status();
    if (!dataset.ok() || dataset->state() == v1::DATASET_STATE_FAILED) {
      MT_RETURN_IF_ERROR(disk.RemoveTree(absl::StrCat(options_.datasets_folder, "/", id)));
    }
  }
  return absl::OkStatus();
}

absl::Status DatasetStore::ResumeChecks() {
  std::vector<Numbered<v1::Dataset>> unchecked;
  MT_RETURN_IF_ERROR(parts_.database.Read([&](Connection& connection) -> absl::Status {
    MT_ASSIGN_OR_RETURN(unchecked, ListResources<v1::Dataset>(
                                       connection, {.collection = kCollection,
                                                    .states = {v1::DATASET_STATE_CHECKING}}));
    return absl::OkStatus();
  }));
  for (const auto& [number, dataset] : unchecked) Check(dataset.name());
  return absl::OkStatus();
}

absl::StatusOr<v1::Dataset> DatasetStore::Create(const RequestKey& key,
                                                 const CreateRequest& request) {
  if (request.validate_only) {
    v1::Dataset dataset;
    MT_RETURN_IF_ERROR(parts_.database.Read([&](Connection& connection) -> absl::Status {
      MT_ASSIGN_OR_RETURN(dataset, Describe(connection, request));
      return absl::OkStatus();
    }));
    return dataset;
  }
  std::optional<std::string> created;
  MT_ASSIGN_OR_RETURN(
      const std::string answer,
      WriteOnce(parts_.database, key, parts_.clock.WallNow(),
                [&](Connection& connection) -> absl::StatusOr<std::string> {
                  MT_ASSIGN_OR_RETURN(const v1::Dataset dataset, Describe(connection, request));
                  MT_RETURN_IF_ERROR(TakeFile(dataset, request.upload));
                  MT_RETURN_IF_ERROR(DeleteResource(connection, dataset.name()));
                  MT_RETURN_IF_ERROR(InsertResource(connection, kCollection, dataset.name(),
                                                    dataset.state(), dataset));
                  created = dataset.name();
                  return dataset.SerializeAsString();
                }));
  if (created.has_value()) Check(*created);
  return ParseStored<v1::Dataset>(answer);
}

absl::StatusOr<v1::Dataset> DatasetStore::Describe(Connection& connection,
                                                   const CreateRequest& request) {
  const std::string name = absl::StrCat(kCollection, "/", request.dataset_id);
  const absl::StatusOr<v1::Dataset> existing = FindResource<v1::Dataset>(connection, name);
  if (!existing.ok() && !absl::IsNotFound(existing.status())) return existing.status();
  if (existing.ok() && existing->state() != v1::DATASET_STATE_FAILED) return ResourceExists(name);
  MT_ASSIGN_OR_RETURN(const v1::Upload upload,
                      FindResource<v1::Upload>(connection, request.upload));
  MT_RETURN_IF_ERROR(CheckFinalized(upload));
  v1::Dataset dataset;
  dataset.set_name(name);
  dataset.set_uid(NewUid());
  *dataset.mutable_create_time() = TimestampOf(parts_.clock.WallNow());
  *dataset.mutable_update_time() = dataset.create_time();
  dataset.set_state(v1::DATASET_STATE_CHECKING);
  dataset.set_size_bytes(upload.size_bytes());
  dataset.set_sha256(upload.sha256());
  dataset.set_on_bad_row(request.skip_bad_rows ? kSkip : "error");
  return dataset;
}

// Before the row: a row always has its file, a folder without a row is removed at the next start.
absl::Status DatasetStore::TakeFile(const v1::Dataset& dataset, const std::string& upload) {
  FileSystem& disk = parts_.disk;
  const std::string folder = FolderOf(dataset.name());
  MT_RETURN_IF_ERROR(disk.RemoveTree(folder));
  MT_RETURN_IF_ERROR(disk.MakeFolders(folder));
  MT_RETURN_IF_ERROR(disk.Link(parts_.uploads.PathOf(upload), DataPathOf(dataset.name())));
  MT_RETURN_IF_ERROR(disk.SyncFolder(folder));
  return disk.SyncFolder(options_.datasets_folder);
}

absl::StatusOr<v1::Dataset> DatasetStore::Get(const std::string& name) {
  v1::Dataset dataset;
  MT_RETURN_IF_ERROR(parts_.database.Read([&](Connection& connection) -> absl::Status {
    MT_ASSIGN_OR_RETURN(dataset, FindResource<v1::Dataset>(connection, name));
    return absl::OkStatus();
  }));
  return dataset;
}

absl::StatusOr<std::vector<Numbered<v1::Dataset>>> DatasetStore::List(int64_t before_number,
                                                                      int64_t limit) {
  std::vector<Numbered<v1::Dataset>> datasets;
  MT_RETURN_IF_ERROR(parts_.database.Read([&](Connection& connection) -> absl::Status {
    MT_ASSIGN_OR_RETURN(
        datasets, ListResources<v1::Dataset>(
                      connection,
                      {.collection = kCollection, .before_number = before_number, .limit = limit}));
    return absl::OkStatus();
  }));
  return datasets;
}

void DatasetStore::Check(const std::string& name) {
  executor_.Run([this, name] {
    // What cannot be recorded, such as on a full disk, is tried again at the next start.
    TryCheck(name).IgnoreError();
  });
}

absl::Status DatasetStore::TryCheck(const std::string& name) {
  MT_ASSIGN_OR_RETURN(v1::Dataset dataset, Get(name));
  const absl::StatusOr<DataPreparer::CheckResult> result =
      parts_.preparer.Check(DataPathOf(name), dataset.on_bad_row() == kSkip);
  if (absl::IsCancelled(result.status())) return absl::OkStatus();
  if (!result.ok()) return Fail(std::move(dataset), result.status());
  dataset.set_state(v1::DATASET_STATE_READY);
  dataset.set_row_count(result->row_count);
  dataset.set_skipped_row_count(result->skipped_row_count);
  return Save(dataset);
}

// First the row: what a crash leaves of the files is removed at the next start.
absl::Status DatasetStore::Fail(v1::Dataset dataset, const absl::Status& reason) {
  dataset.set_state(v1::DATASET_STATE_FAILED);
  dataset.set_failure(std::string(reason.message()));
  MT_RETURN_IF_ERROR(Save(dataset));
  MT_RETURN_IF_ERROR(parts_.disk.RemoveTree(FolderOf(dataset.name())));
  return parts_.uploads.RemoveContent(dataset.sha256());
}

absl::Status DatasetStore::Save(v1::Dataset& dataset) {
  *dataset.mutable_update_time() = TimestampOf(parts_.clock.WallNow());
  return parts_.database.Write([&dataset](Connection& connection) {
    return UpdateResource(connection, dataset.name(), dataset.state(), dataset);
  });
}

absl::StatusOr<std::string> DatasetStore::Prepare(const PrepareRequest& request) {
  MutexLock lock(&prepare_mutex_);
  MT_ASSIGN_OR_RETURN(const v1::Dataset dataset, Get(request.dataset));
  MT_RETURN_IF_ERROR(CheckReady(dataset));
  MT_ASSIGN_OR_RETURN(const std::string fingerprint,
                      FingerprintOf({.data_sha256 = dataset.sha256(),
                                     .skip_bad_rows = dataset.on_bad_row() == kSkip,
                                     .skip_untrained_rows = request.skip_untrained_rows,
                                     .model_path = request.model_path,
                                     .vocabulary_size = request.vocabulary_size,
                                     .max_sequence_length = request.max_sequence_length,
                                     .template_time = TimeOf(dataset.create_time())},
                                    parts_.disk));
  const std::string path = absl::StrCat(options_.prepared_folder, "/", fingerprint);
  // Renamed into place when it was complete.
  if (!parts_.disk.Exists(path)) {
    MT_RETURN_IF_ERROR(MakeTokens(dataset, request, fingerprint, path));
  }
  return path;
}

absl::Status DatasetStore::MakeTokens(const v1::Dataset& dataset, const PrepareRequest& request,
                                      const std::string& fingerprint, const std::string& path) {
  MT_RETURN_IF_ERROR(CheckUnchanged(dataset, DataPathOf(dataset.name())));
  const std::string staging = absl::StrCat(options_.staging_folder, "/", fingerprint);
  const absl::Status status =
      parts_.preparer.Tokenize({.run_name = request.run_name,
                                .data_path = DataPathOf(dataset.name()),
                                .skip_bad_rows = dataset.on_bad_row() == kSkip,
                                .skip_untrained_rows = request.skip_untrained_rows,
                                .model_path = request.model_path,
                                .vocabulary_size = request.vocabulary_size,
                                .max_sequence_length = request.max_sequence_length,
                                .template_time = TimeOf(dataset.create_time()),
                                .fingerprint = fingerprint,
                                .staging_path = staging,
                                .output_path = path});
  if (status.ok()) return status;
  MT_RETURN_IF_ERROR(parts_.disk.RemoveTree(staging));
  return absl::Status(status.code(), absl::StrCat(dataset.name(), ": ", status.message()));
}

std::string DatasetStore::FolderOf(const std::string& name) const {
  return absl::StrCat(options_.datasets_folder, name.substr(sizeof(kCollection) - 1));
}

std::string DatasetStore::DataPathOf(const std::string& name) const {
  return absl::StrCat(FolderOf(name), "/data.jsonl");
}

}  // namespace megatrain
