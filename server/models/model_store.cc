#include "server/models/model_store.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "server/database/request_log.h"
#include "server/errors/errors.h"
#include "server/names/resource_name.h"
#include "server/resources/timestamp.h"

namespace megatrain {
namespace {

constexpr char kModels[] = "models";
// Rows that remember where an export is being written, so that a crash leaves nothing there.
constexpr char kExports[] = "exports";

std::string ParentOf(const std::string& path) { return path.substr(0, path.rfind('/')); }

int64_t VersionNumber(const std::string& name) {
  return std::stoll(name.substr(name.rfind('/') + 1));
}

bool IsFromJob(const v1::ModelVersion& version) { return version.source().starts_with("jobs/"); }

absl::Status CheckReady(const v1::ModelVersion& version) {
  if (version.state() == v1::MODEL_STATE_READY) return absl::OkStatus();
  const std::string why = version.state() == v1::MODEL_STATE_FAILED
                              ? absl::StrCat("could not be imported: ", version.failure())
                              : std::string("is still being imported: wait until it is READY");
  return PreconditionFailed(version.name(), "MODEL_NOT_READY",
                            absl::StrCat(version.name(), " ", why));
}

absl::Status CheckSame(const FolderFacts& facts, const v1::ModelVersion& version) {
  if (facts.fingerprint == version.fingerprint()) return absl::OkStatus();
  return WithReason(
      absl::DataLossError(absl::StrCat("the files of ", version.name(), " in ", version.path(),
                                       " have changed since they were stored: import or train it "
                                       "again")),
      "MODEL_CHANGED", {{"model", version.name()}});
}

}  // namespace

ModelStore::ModelStore(const Parts& parts, Options options)
    : parts_(parts), options_(std::move(options)), allowed_paths_(options_.allowed_paths) {}

ModelStore::~ModelStore() { stop_ = true; }

absl::StatusOr<std::unique_ptr<ModelStore>> ModelStore::Open(const Parts& parts, Options options) {
  std::unique_ptr<ModelStore> store(new ModelStore(parts, std::move(options)));
  MT_RETURN_IF_ERROR(parts.disk.RemoveTree(store->options_.staging_folder));
  MT_RETURN_IF_ERROR(parts.disk.MakeFolders(store->options_.staging_folder));
  MT_RETURN_IF_ERROR(parts.disk.MakeFolders(store->options_.models_folder));
  MT_RETURN_IF_ERROR(store->RemoveInterruptedExports());
  MT_RETURN_IF_ERROR(store->FinishInterrupted());
  return store;
}

absl::Status ModelStore::FinishInterrupted() {
  std::vector<Numbered<v1::ModelVersion>> versions;
  MT_RETURN_IF_ERROR(parts_.database.Read([&](Connection& connection) -> absl::Status {
    MT_ASSIGN_OR_RETURN(versions, ListResources<v1::ModelVersion>(
                                      connection, {.collection = absl::StrCat(kModels, "/"),
                                                   .states = {v1::MODEL_STATE_IMPORTING}}));
    return absl::OkStatus();
  }));
  for (const auto& [number, version] : versions) {
    MT_RETURN_IF_ERROR(FinishVersion(version));
  }
  return absl::OkStatus();
}

// A folder is renamed into its place when it is complete. Without one, an import starts again, and
// a job publishes again by itself.
absl::Status ModelStore::FinishVersion(const v1::ModelVersion& version) {
  if (parts_.disk.Exists(version.path())) {
    v1::ModelVersion ready = version;
    MT_RETURN_IF_ERROR(parts_.disk.SyncFolder(ParentOf(version.path())));
    MT_ASSIGN_OR_RETURN(const FolderFacts facts, DescribeFolder(parts_.disk, version.path()));
    ready.set_size_bytes(facts.size_bytes);
    ready.set_fingerprint(facts.fingerprint);
    ready.set_state(v1::MODEL_STATE_READY);
    return Save(ready);
  }
  if (IsFromJob(version)) return Delete(version.name());
  Copy(version.name());
  return absl::OkStatus();
}

absl::StatusOr<v1::ModelVersion> ModelStore::Import(const RequestKey& key,
                                                    const ImportRequest& request) {
  MT_ASSIGN_OR_RETURN(const std::optional<std::string> known, FindAnswer(parts_.database, key));
  if (known.has_value()) return ParseStored<v1::ModelVersion>(*known);
  MT_ASSIGN_OR_RETURN(const std::string source, allowed_paths_.Resolve(request.path));
  // First where its links lead: nothing outside is read.
  MT_ASSIGN_OR_RETURN(const std::vector<NamedFile> files, FilesToImport(source));
  MT_ASSIGN_OR_RETURN(v1::ModelVersion version, Describe(source));
  MT_ASSIGN_OR_RETURN(const int64_t size_bytes, TotalBytes(parts_.disk, files));
  MT_RETURN_IF_ERROR(CheckRoom(parts_.disk, options_.models_folder, size_bytes));
  version.set_source(source);
  version.set_size_bytes(size_bytes);
  const std::string model = absl::StrCat(kModels, "/", request.model_id);
  if (request.validate_only) {
    version.set_name(absl::StrCat(model, "/versions/-"));
    return version;
  }
  std::optional<std::string> created;
  MT_ASSIGN_OR_RETURN(const std::string answer,
                      WriteOnce(parts_.database, key, parts_.clock.WallNow(),
                                [&](Connection& connection) -> absl::StatusOr<std::string> {
                                  MT_RETURN_IF_ERROR(Insert(connection, model, version));
                                  created = version.name();
                                  return version.SerializeAsString();
                                }));
  if (created.has_value()) Copy(*created);
  return ParseStored<v1::ModelVersion>(answer);
}

absl::StatusOr<v1::ModelVersion> ModelStore::Describe(const std::string& folder) {
  MT_ASSIGN_OR_RETURN(const ModelSummary summary, CheckModel(parts_.disk, folder));
  v1::ModelVersion version;
  version.set_state(v1::MODEL_STATE_IMPORTING);
  version.set_architecture(summary.config.architecture);
  version.set_parameter_count(summary.parameter_count);
  version.set_trainable(summary.trainable);
  version.set_failure(summary.untrainable_reason);
  return version;
}

absl::StatusOr<std::vector<NamedFile>> ModelStore::FilesToImport(const std::string& folder) {
  MT_ASSIGN_OR_RETURN(std::vector<NamedFile> files, FindModelFiles(parts_.disk, folder));
  MT_RETURN_IF_ERROR(ResolveLinks(allowed_paths_, files));
  return files;
}

absl::Status ModelStore::Insert(Connection& connection, const std::string& model,
                                v1::ModelVersion& version) {
  MT_ASSIGN_OR_RETURN(const auto newest, ListResources<v1::ModelVersion>(
                                             connection, {.collection = model, .limit = 1}));
  // A folder without a row is of a later time than the database, which was put back.
  int64_t number = newest.empty() ? 0 : VersionNumber(newest[0].message.name());
  do {
    version.set_name(absl::StrCat(model, "/versions/", ++number));
    version.set_path(
        absl::StrCat(options_.models_folder, version.name().substr(sizeof(kModels) - 1)));
  } while (parts_.disk.Exists(version.path()));
  version.set_uid(NewUid());
  *version.mutable_create_time() = TimestampOf(parts_.clock.WallNow());
  *version.mutable_update_time() = version.create_time();
  return InsertResource(connection, model, version.name(), version.state(), version);
}

ByteProgress ModelStore::UntilStop(const ByteProgress& progress) {
  return [this, progress](int64_t done_bytes, int64_t all_bytes) {
    return stop_ ? absl::CancelledError("the server stops")
                 : TellProgress(progress, done_bytes, all_bytes);
  };
}

void ModelStore::Copy(const std::string& name) {
  executor_.Run([this, name] {
    // What cannot be recorded, such as on a full disk, is tried again at the next start.
    TryCopy(name).IgnoreError();
  });
}

absl::Status ModelStore::TryCopy(const std::string& name) {
  MT_ASSIGN_OR_RETURN(v1::ModelVersion version, Get(name));
  const std::string staging = absl::StrCat(options_.staging_folder, "/", version.uid());
  absl::Status status = CopyToStaging(version, staging);
  if (status.ok()) status = MoveIntoPlace(staging, version);
  version.set_state(v1::MODEL_STATE_READY);
  if (!status.ok()) {
    MT_RETURN_IF_ERROR(parts_.disk.RemoveTree(staging));
    if (absl::IsCancelled(status)) return absl::OkStatus();
    version.set_state(v1::MODEL_STATE_FAILED);
    version.set_failure(std::string(status.message()));
  }
  return Save(version);
}

absl::Status ModelStore::CopyToStaging(v1::ModelVersion& version, const std::string& staging) {
  MT_ASSIGN_OR_RETURN(const std::string source, allowed_paths_.Resolve(version.source()));
  MT_ASSIGN_OR_RETURN(const std::vector<NamedFile> files, FilesToImport(source));
  MT_ASSIGN_OR_RETURN(const FolderFacts facts, CopyFiles(parts_.disk, files, staging, UntilStop()));
  // The source may have changed since it was checked.
  MT_RETURN_IF_ERROR(CheckModel(parts_.disk, staging).status());
  version.set_size_bytes(facts.size_bytes);
  version.set_fingerprint(facts.fingerprint);
  return absl::OkStatus();
}

absl::Status ModelStore::MoveIntoPlace(const std::string& folder, const v1::ModelVersion& version) {
  FileSystem& disk = parts_.disk;
  const std::string versions = ParentOf(version.path());
  MT_RETURN_IF_ERROR(disk.MakeFolders(versions));
  MT_RETURN_IF_ERROR(disk.SyncFolder(options_.models_folder));
  MT_RETURN_IF_ERROR(disk.SyncFolder(ParentOf(versions)));
  MT_RETURN_IF_ERROR(disk.Rename(folder, version.path()));
  return disk.SyncFolder(versions);
}

absl::StatusOr<v1::ModelVersion> ModelStore::Get(const std::string& name) {
  v1::ModelVersion version;
  MT_RETURN_IF_ERROR(parts_.database.Read([&](Connection& connection) -> absl::Status {
    if (MatchResourceName("models/*", name).has_value()) {
      MT_ASSIGN_OR_RETURN(
          const auto ready,
          ListResources<v1::ModelVersion>(
              connection, {.collection = name, .states = {v1::MODEL_STATE_READY}, .limit = 1}));
      if (ready.empty()) return ResourceNotFound(name);
      version = ready[0].message;
      return absl::OkStatus();
    }
    MT_ASSIGN_OR_RETURN(version, FindResource<v1::ModelVersion>(connection, name));
    return absl::OkStatus();
  }));
  return version;
}

absl::StatusOr<std::vector<Numbered<v1::ModelVersion>>> ModelStore::List(const std::string& model,
                                                                         int64_t before_number,
                                                                         int64_t limit) {
  const ResourceQuery query{.collection = model.empty() ? absl::StrCat(kModels, "/") : model,
                            .before_number = before_number,
                            .limit = limit};
  std::vector<Numbered<v1::ModelVersion>> versions;
  MT_RETURN_IF_ERROR(parts_.database.Read([&](Connection& connection) -> absl::Status {
    MT_ASSIGN_OR_RETURN(versions, ListResources<v1::ModelVersion>(connection, query));
    return absl::OkStatus();
  }));
  return versions;
}

absl::StatusOr<v1::ModelVersion> ModelStore::Publish(const std::string& model,
                                                     const std::string& folder,
                                                     const std::string& source) {
  MutexLock lock(&publish_mutex_);
  absl::StatusOr<v1::ModelVersion> version = FindBySource(model, source);
  if (version.ok() && version->state() == v1::MODEL_STATE_READY) return version;
  if (!version.ok()) {
    MT_ASSIGN_OR_RETURN(version, Describe(folder));
    version->set_source(source);
    MT_RETURN_IF_ERROR(parts_.database.Write(
        [&](Connection& connection) { return Insert(connection, model, *version); }));
  }
  // The row comes first, so that a folder in place always has one. It can be there when its name
  // could not be synced, or the row not saved, at the last try.
  const bool in_place = parts_.disk.Exists(version->path());
  MT_ASSIGN_OR_RETURN(const FolderFacts facts,
                      DescribeFolder(parts_.disk, in_place ? version->path() : folder));
  MT_RETURN_IF_ERROR(in_place ? parts_.disk.SyncFolder(ParentOf(version->path()))
                              : MoveIntoPlace(folder, *version));
  version->set_size_bytes(facts.size_bytes);
  version->set_fingerprint(facts.fingerprint);
  version->set_state(v1::MODEL_STATE_READY);
  MT_RETURN_IF_ERROR(Save(*version));
  return version;
}

absl::StatusOr<v1::ModelVersion> ModelStore::FindBySource(const std::string& model,
                                                          const std::string& source) {
  MT_ASSIGN_OR_RETURN(const auto versions, List(model, 0, -1));
  for (const auto& [number, version] : versions) {
    if (version.source() == source && version.state() != v1::MODEL_STATE_FAILED) return version;
  }
  return absl::NotFoundError(absl::StrCat(model, " has no version of ", source));
}

absl::StatusOr<v1::ModelVersion> ModelStore::Export(const RequestKey& key, const std::string& name,
                                                    const std::string& path,
                                                    const ByteProgress& progress) {
  MT_ASSIGN_OR_RETURN(const std::optional<std::string> known, FindAnswer(parts_.database, key));
  if (known.has_value()) return ParseStored<v1::ModelVersion>(*known);
  MT_ASSIGN_OR_RETURN(const v1::ModelVersion version, Get(name));
  MT_RETURN_IF_ERROR(CheckReady(version));
  return ExportBy(key, version, path,
                  [&](const std::string& folder) { return CopyOut(version, folder, progress); });
}

absl::StatusOr<v1::ModelVersion> ModelStore::ExportOther(const RequestKey& key,
                                                         const std::string& version,
                                                         const OtherWeights& weights,
                                                         const std::string& path) {
  MT_ASSIGN_OR_RETURN(const std::optional<std::string> known, FindAnswer(parts_.database, key));
  if (known.has_value()) return ParseStored<v1::ModelVersion>(*known);
  MT_ASSIGN_OR_RETURN(v1::ModelVersion other, Get(version));
  MT_RETURN_IF_ERROR(CheckReady(other));
  other.set_name(weights.name);
  return ExportBy(key, std::move(other), path, weights.write);
}

absl::StatusOr<v1::ModelVersion> ModelStore::ExportBy(
    const RequestKey& key, v1::ModelVersion version, const std::string& path,
    const std::function<absl::Status(const std::string& folder)>& write) {
  MT_ASSIGN_OR_RETURN(const std::string target, ResolveTarget(path, version.size_bytes()));
  // Beside the target, hence on its disk.
  v1::ModelVersion record;
  record.set_name(absl::StrCat(kExports, "/", NewUid()));
  record.set_path(absl::StrCat(ParentOf(target), "/.", NewResourceId("megatrain-export")));
  MT_RETURN_IF_ERROR(parts_.database.Write([&record](Connection& connection) {
    return InsertResource(connection, kExports, record.name(), 0, record);
  }));
  absl::Status status = write(record.path());
  if (status.ok()) status = parts_.disk.Rename(record.path(), target);
  if (status.ok()) status = parts_.disk.SyncFolder(ParentOf(target));
  if (!status.ok()) {
    MT_RETURN_IF_ERROR(parts_.disk.RemoveTree(record.path()));
    MT_RETURN_IF_ERROR(Delete(record.name()));
    return status;
  }
  version.set_path(target);
  MT_RETURN_IF_ERROR(WriteOnce(parts_.database, key, parts_.clock.WallNow(),
                               [&](Connection& connection) -> absl::StatusOr<std::string> {
                                 MT_RETURN_IF_ERROR(DeleteResource(connection, record.name()));
                                 return version.SerializeAsString();
                               })
                         .status());
  return version;
}

absl::StatusOr<std::string> ModelStore::ResolveTarget(const std::string& path, int64_t size_bytes) {
  MT_ASSIGN_OR_RETURN(const std::string target, allowed_paths_.Resolve(path));
  if (parts_.disk.Exists(target)) {
    return WithReason(
        absl::AlreadyExistsError(absl::StrCat(target, " exists already: name a new folder")),
        "PATH_EXISTS", {{"path", target}});
  }
  const std::string parent = ParentOf(target);
  if (!parts_.disk.Exists(parent)) {
    return WithReason(
        absl::NotFoundError(absl::StrCat("there is no folder ", parent, ": make it first")),
        "FOLDER_NOT_FOUND", {{"path", parent}});
  }
  MT_RETURN_IF_ERROR(CheckRoom(parts_.disk, parent, size_bytes));
  return target;
}

absl::Status ModelStore::CopyOut(const v1::ModelVersion& version, const std::string& staging,
                                 const ByteProgress& progress) {
  MT_ASSIGN_OR_RETURN(const std::vector<NamedFile> files, ListFiles(version.path()));
  MT_ASSIGN_OR_RETURN(const FolderFacts facts,
                      CopyFiles(parts_.disk, files, staging, UntilStop(progress)));
  return CheckSame(facts, version);
}

absl::Status ModelStore::CheckUnchanged(const v1::ModelVersion& version) {
  MT_ASSIGN_OR_RETURN(const FolderFacts facts, DescribeFolder(parts_.disk, version.path()));
  return CheckSame(facts, version);
}

absl::Status ModelStore::RemoveInterruptedExports() {
  std::vector<Numbered<v1::ModelVersion>> exports;
  MT_RETURN_IF_ERROR(parts_.database.Read([&](Connection& connection) -> absl::Status {
    MT_ASSIGN_OR_RETURN(exports,
                        ListResources<v1::ModelVersion>(connection, {.collection = kExports}));
    return absl::OkStatus();
  }));
  for (const auto& [number, record] : exports) {
    MT_RETURN_IF_ERROR(parts_.disk.RemoveTree(record.path()));
    MT_RETURN_IF_ERROR(Delete(record.name()));
  }
  return absl::OkStatus();
}

absl::Status ModelStore::Save(v1::ModelVersion& version) {
  *version.mutable_update_time() = TimestampOf(parts_.clock.WallNow());
  return parts_.database.Write([&version](Connection& connection) {
    return UpdateResource(connection, version.name(), version.state(), version);
  });
}

absl::Status ModelStore::Delete(const std::string& name) {
  return parts_.database.Write(
      [&name](Connection& connection) { return DeleteResource(connection, name); });
}

}  // namespace megatrain
