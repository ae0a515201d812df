#include "server/checkpoints/checkpoint_catalog.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/status_macros.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/verify_checkpoint.h"
#include "server/checkpoints/checkpoint_rows.h"
#include "server/checkpoints/retention.h"
#include "server/database/request_log.h"
#include "server/errors/errors.h"
#include "server/names/resource_name.h"

namespace megatrain {
namespace {

// Beside a job that trains.
constexpr int kVerifyThreads = 2;
constexpr int64_t kMaxManifestBytes = int64_t{256} << 20;
constexpr char kCheckpoints[] = "/checkpoints";

std::string JobIdOfName(const std::string& job) { return job.substr(sizeof("jobs/") - 1); }

// Other faults than these are the disk's own.
bool IsInvalid(const absl::Status& status) {
  return absl::IsNotFound(status) || absl::IsDataLoss(status) || absl::IsInvalidArgument(status) ||
         absl::IsUnimplemented(status);
}

}  // namespace

absl::StatusOr<std::unique_ptr<CheckpointCatalog>> CheckpointCatalog::Open(const Parts& parts) {
  std::unique_ptr<CheckpointCatalog> catalog(new CheckpointCatalog(parts));
  MT_RETURN_IF_ERROR(parts.disk.MakeFolders(parts.jobs_folder));
  MT_RETURN_IF_ERROR(catalog->Reconcile());
  return catalog;
}

absl::Status CheckpointCatalog::Reconcile() {
  MT_ASSIGN_OR_RETURN(const std::vector<std::string> ids,
                      parts_.disk.ListFolder(parts_.jobs_folder));
  for (const std::string& id : ids) {
    const std::string job = absl::StrCat("jobs/", id);
    if (IsResourceId(id) && parts_.disk.Exists(FolderOf(job)) && parts_.jobs.Get(job).ok()) {
      MT_RETURN_IF_ERROR(AdoptFolders(job));
    }
  }
  MT_ASSIGN_OR_RETURN(const Rows rows, List("", 0, -1));
  for (const auto& [number, row] : rows) {
    if (const auto found = OpenCheckpoint(row.path(), parts_.disk); IsInvalid(found.status())) {
      parts_.report(
          absl::StrCat(row.name(), " is forgotten: ", std::string(found.status().message())));
      MT_RETURN_IF_ERROR(ForgetRow(row));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckpointCatalog::AdoptFolders(const std::string& job) {
  const std::string folder = FolderOf(job);
  MT_RETURN_IF_ERROR(CleanCheckpointFolder(folder, parts_.disk));
  MT_ASSIGN_OR_RETURN(const CheckpointListing listing, ListCheckpoints(folder, parts_.disk));
  for (const CheckpointListing::Invalid& invalid : listing.invalid) {
    parts_.report(absl::StrCat(folder, "/", invalid.id, " is no checkpoint and stays where it is: ",
                               std::string(invalid.reason.message())));
  }
  return parts_.database.Write([&](Connection& connection) -> absl::Status {
    for (const Checkpoint& found : listing.valid) {
      MT_RETURN_IF_ERROR(InsertCheckpoint(connection, DescribeCheckpoint(job, found)).status());
    }
    return absl::OkStatus();
  });
}

absl::Status CheckpointCatalog::ForgetRow(const v1::Checkpoint& row) {
  return parts_.database.Write(
      [&row](Connection& connection) { return DeleteCheckpointRow(connection, row.name()); });
}

std::string CheckpointCatalog::FolderOf(const std::string& job) const {
  return absl::StrCat(parts_.jobs_folder, "/", JobIdOfName(job), kCheckpoints);
}

absl::StatusOr<std::string> CheckpointCatalog::Folder(const v1::Job& job) {
  const std::string folder = FolderOf(job.name());
  MT_RETURN_IF_ERROR(parts_.disk.MakeFolders(folder));
  return folder;
}

absl::StatusOr<CheckpointCatalog::Rows> CheckpointCatalog::RowsOf(const std::string& job) {
  Rows rows;
  MT_RETURN_IF_ERROR(parts_.database.Read([&](Connection& connection) -> absl::Status {
    MT_ASSIGN_OR_RETURN(rows, SelectCheckpoints(connection, job));
    return absl::OkStatus();
  }));
  return rows;
}

absl::StatusOr<std::optional<v1::Checkpoint>> CheckpointCatalog::StartOf(const JobRecord& record) {
  MT_ASSIGN_OR_RETURN(const Rows rows, RowsOf(record.job.name()));
  const JobWishes& wishes = record.wishes;
  const std::string& wished = wishes.start_checkpoint;
  const int64_t wished_step =
      wished.empty() ? INT64_MAX
                     : StepOfCheckpointId(wished.substr(wished.rfind('/') + 1)).value_or(0);
  const v1::Checkpoint* earlier = nullptr;  // the last one up to the wished step
  for (const auto& [number, row] : rows) {
    if (!row.damage().empty()) {
      continue;
    }
    if (number > wishes.start_after_number) {
      return row;
    }
    if (row.step() <= wished_step && (earlier == nullptr || row.step() > earlier->step())) {
      earlier = &row;
    }
  }
  if (earlier != nullptr) {
    return *earlier;
  }
  if (record.job.forked_from().empty()) {
    return std::nullopt;
  }
  MT_ASSIGN_OR_RETURN(const Numbered<v1::Checkpoint> source, Get(record.job.forked_from()));
  if (!source.message.damage().empty()) {
    return absl::NotFoundError(absl::StrCat(source.message.name(), ", of which ", record.job.name(),
                                            " is a fork, is damaged: ", source.message.damage()));
  }
  return source.message;
}

absl::StatusOr<v1::Checkpoint> CheckpointCatalog::Commit(const JobRecord& record,
                                                         const std::string& checkpoint_id) {
  const std::string& job = record.job.name();
  const absl::StatusOr<Checkpoint> found =
      OpenCheckpoint(absl::StrCat(FolderOf(job), "/", checkpoint_id), parts_.disk);
  if (IsInvalid(found.status())) {
    return absl::DataLossError(std::string(found.status().message()));
  }
  MT_RETURN_IF_ERROR(found.status());
  v1::Checkpoint committed;
  MT_RETURN_IF_ERROR(parts_.database.Write([&](Connection& connection) -> absl::Status {
    MT_ASSIGN_OR_RETURN(committed, InsertCheckpoint(connection, DescribeCheckpoint(job, *found)));
    return absl::OkStatus();
  }));
  if (const absl::Status status = Retain(record); !status.ok()) {
    parts_.report(absl::StrCat("old checkpoints of ", job,
                               " stay until the next one: ", std::string(status.message())));
  }
  return committed;
}

absl::StatusOr<std::set<std::string>> CheckpointCatalog::NeededByForks() {
  MT_ASSIGN_OR_RETURN(const std::vector<JobRecord> active, parts_.jobs.Active());
  std::set<std::string> needed;
  for (const JobRecord& record : active) {
    if (!record.job.forked_from().empty() && record.job.last_checkpoint().empty()) {
      needed.insert(record.job.forked_from());
    }
  }
  return needed;
}

absl::Status CheckpointCatalog::Retain(const JobRecord& record) {
  MT_ASSIGN_OR_RETURN(const Rows rows, RowsOf(record.job.name()));
  RetentionRules rules;
  rules.keep_last = std::max<int64_t>(record.job.spec().checkpoint().keep_last(), 1);
  MT_ASSIGN_OR_RETURN(rules.needed, NeededByForks());
  const std::string& wished = record.wishes.start_checkpoint;
  if (!wished.empty()) {
    rules.rewound_step = StepOfCheckpointId(wished.substr(wished.rfind('/') + 1)).value_or(0);
  }
  std::vector<v1::Checkpoint> newest_first;
  for (const auto& [number, row] : rows) {
    newest_first.push_back(row);
    if (!wished.empty() && number <= record.wishes.start_after_number) {
      rules.before_rewind.insert(row.name());
    }
  }
  for (const std::string& name : CheckpointsToRemove(newest_first, rules)) {
    const auto row = std::find_if(newest_first.begin(), newest_first.end(),
                                  [&name](const auto& each) { return each.name() == name; });
    MT_RETURN_IF_ERROR(MoveAway(*row));
    if (const absl::Status forgotten = ForgetRow(*row); !forgotten.ok()) {
      MoveBack(*row);
      return forgotten;
    }
    parts_.on_retention(row->size_bytes());
    RemoveLater(*row);
  }
  return absl::OkStatus();
}

std::string CheckpointCatalog::RemovedFolderOf(const v1::Checkpoint& row) const {
  return absl::StrCat(FolderOf(JobOfCheckpoint(row.name())), "/", std::string(kTemporaryPrefix),
                      "removed-", row.uid());
}

absl::Status CheckpointCatalog::MoveAway(const v1::Checkpoint& row) {
  MutexLock lock(&remove_mutex_);
  if (!parts_.disk.Exists(row.path())) {
    return absl::OkStatus();
  }
  MT_RETURN_IF_ERROR(parts_.disk.Rename(row.path(), RemovedFolderOf(row)));
  return parts_.disk.SyncFolder(FolderOf(JobOfCheckpoint(row.name())));
}

void CheckpointCatalog::MoveBack(const v1::Checkpoint& row) {
  MutexLock lock(&remove_mutex_);
  absl::Status status = parts_.disk.Rename(RemovedFolderOf(row), row.path());
  status.Update(parts_.disk.SyncFolder(FolderOf(JobOfCheckpoint(row.name()))));
  if (!status.ok() && !absl::IsNotFound(status)) {
    parts_.report(
        absl::StrCat(row.name(), ": has no folder any more: ", std::string(status.message())));
  }
}

void CheckpointCatalog::RemoveLater(const v1::Checkpoint& row) {
  remover_.Run([this, path = RemovedFolderOf(row)] {
    if (const absl::Status status = parts_.disk.RemoveTree(path); !status.ok()) {
      parts_.report(
          absl::StrCat(path, " stays until the next start: ", std::string(status.message())));
    }
  });
}

absl::StatusOr<std::string> CheckpointCatalog::Best(const v1::Job& job) {
  MT_ASSIGN_OR_RETURN(const Rows rows, RowsOf(job.name()));
  for (const auto& [number, row] : rows) {
    if (row.best()) {
      return row.name();
    }
  }
  return std::string();
}

absl::Status CheckpointCatalog::MarkDamaged(const std::string& name, const std::string& damage) {
  const absl::Status status = parts_.database.Write([&](Connection& connection) {
    return ChangeCheckpoint(connection, name, parts_.clock.WallNow(),
                            [&damage](v1::Checkpoint& row) { row.set_damage(damage); })
        .status();
  });
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

absl::Status CheckpointCatalog::CheckRoom(const v1::Job& job) {
  const int64_t needed_bytes = job.plan().checkpoint_bytes();
  MT_ASSIGN_OR_RETURN(const int64_t available_bytes,
                      parts_.disk.AvailableBytes(parts_.jobs_folder));
  if (available_bytes >= needed_bytes) {
    return absl::OkStatus();
  }
  return WithReason(absl::ResourceExhaustedError(
                        absl::StrCat("the next checkpoint of ", job.name(), " takes ", needed_bytes,
                                     " bytes, and ", parts_.jobs_folder, " has ", available_bytes)),
                    "DISK_SPACE_EXCEEDED",
                    {{"needed_bytes", absl::StrCat(needed_bytes)},
                     {"available_bytes", absl::StrCat(available_bytes)}});
}

absl::StatusOr<Numbered<v1::Checkpoint>> CheckpointCatalog::Get(const std::string& name) {
  MT_ASSIGN_OR_RETURN(const Rows rows, RowsOf(JobOfCheckpoint(name)));
  for (const Numbered<v1::Checkpoint>& row : rows) {
    if (row.message.name() == name) {
      return row;
    }
  }
  return ResourceNotFound(name);
}

absl::StatusOr<std::vector<Numbered<v1::Checkpoint>>> CheckpointCatalog::List(
    const std::string& job, int64_t before_number, int64_t limit) {
  Rows rows;
  MT_RETURN_IF_ERROR(parts_.database.Read([&](Connection& connection) -> absl::Status {
    MT_ASSIGN_OR_RETURN(
        rows, ListResources<v1::Checkpoint>(connection, {.collection = job.empty() ? "jobs/" : job,
                                                         .before_number = before_number,
                                                         .limit = limit}));
    return absl::OkStatus();
  }));
  return rows;
}

absl::StatusOr<std::vector<v1::CheckpointFile>> CheckpointCatalog::Files(const std::string& name) {
  MT_ASSIGN_OR_RETURN(const Numbered<v1::Checkpoint> row, Get(name));
  const std::string& path = row.message.path();
  MT_ASSIGN_OR_RETURN(const Checkpoint checkpoint, OpenCheckpoint(path, parts_.disk));
  MT_ASSIGN_OR_RETURN(
      const std::string manifest,
      parts_.disk.ReadFile(absl::StrCat(path, "/", kManifestName), kMaxManifestBytes));
  std::vector<v1::CheckpointFile> files(1);
  files[0].set_path(kManifestName);
  files[0].set_size_bytes(static_cast<int64_t>(manifest.size()));
  files[0].set_crc32c(Crc32c(manifest));
  for (const CheckpointFile& file : checkpoint.manifest.files) {
    v1::CheckpointFile& added = files.emplace_back();
    added.set_path(file.name);
    added.set_size_bytes(file.size_bytes);
    added.set_crc32c(file.crc32c);
  }
  return files;
}

absl::StatusOr<v1::Checkpoint> CheckpointCatalog::SetPinned(const RequestKey& key,
                                                            const std::string& name, bool pinned,
                                                            const std::string& etag) {
  MT_ASSIGN_OR_RETURN(
      const std::string answer,
      WriteOnce(
          parts_.database, key, parts_.clock.WallNow(),
          [&](Connection& connection) -> absl::StatusOr<std::string> {
            MT_ASSIGN_OR_RETURN(const v1::Checkpoint row,
                                FindResource<v1::Checkpoint>(connection, name));
            if (!etag.empty() && etag != row.etag()) {
              return WithReason(absl::AbortedError(absl::StrCat(name, " has changed meanwhile")),
                                "ETAG_MISMATCH", {{"etag", row.etag()}});
            }
            MT_ASSIGN_OR_RETURN(
                const v1::Checkpoint changed,
                ChangeCheckpoint(connection, name, parts_.clock.WallNow(),
                                 [pinned](v1::Checkpoint& each) { each.set_pinned(pinned); }));
            return changed.SerializeAsString();
          }));
  return ParseStored<v1::Checkpoint>(answer);
}

absl::Status CheckpointCatalog::CheckRemovable(const v1::Checkpoint& row) {
  if (row.pinned()) {
    return PreconditionFailed(row.name(), "CHECKPOINT_PINNED",
                              absl::StrCat(row.name(), " is pinned: unpin it first"));
  }
  MT_ASSIGN_OR_RETURN(const std::set<std::string> needed, NeededByForks());
  std::string needed_by = needed.contains(row.name()) ? "a fork that has not ended" : "";
  const absl::StatusOr<JobRecord> record = parts_.jobs.Get(JobOfCheckpoint(row.name()));
  if (record.ok() && !IsFinal(record->job.state())) {
    MT_ASSIGN_OR_RETURN(const std::optional<v1::Checkpoint> start, StartOf(*record));
    if (start.has_value() && start->name() == row.name()) {
      needed_by = record->job.name();
    }
  }
  return needed_by.empty()
             ? absl::OkStatus()
             : PreconditionFailed(row.name(), "CHECKPOINT_NEEDED",
                                  absl::StrCat(row.name(), " is what ", needed_by, " goes on from"),
                                  {{"needed_by", needed_by}});
}

absl::Status CheckpointCatalog::Delete(const RequestKey& key, const std::string& name,
                                       bool validate_only) {
  MT_ASSIGN_OR_RETURN(const std::optional<std::string> known, FindAnswer(parts_.database, key));
  if (known.has_value()) {
    return absl::OkStatus();
  }
  MT_ASSIGN_OR_RETURN(const Numbered<v1::Checkpoint> row, Get(name));
  MT_RETURN_IF_ERROR(CheckRemovable(row.message));
  if (validate_only) {
    return absl::OkStatus();
  }
  MT_RETURN_IF_ERROR(MoveAway(row.message));
  const absl::Status forgotten =
      WriteOnce(parts_.database, key, parts_.clock.WallNow(),
                [&](Connection& connection) -> absl::StatusOr<std::string> {
                  MT_RETURN_IF_ERROR(DeleteCheckpointRow(connection, name));
                  return std::string();
                })
          .status();
  if (!forgotten.ok()) {
    MoveBack(row.message);
    return forgotten;
  }
  RemoveLater(row.message);
  return absl::OkStatus();
}

absl::StatusOr<v1::VerifyCheckpointResponse> CheckpointCatalog::Verify(const std::string& name) {
  MT_ASSIGN_OR_RETURN(const Numbered<v1::Checkpoint> row, Get(name));
  v1::VerifyCheckpointResponse response;
  const absl::StatusOr<Checkpoint> found = OpenCheckpoint(row.message.path(), parts_.disk);
  absl::Status status = found.status();
  if (found.ok()) {
    status = VerifyCheckpoint(*found, kVerifyThreads, parts_.disk);
    response.set_verified_bytes(found->SizeBytes());
  }
  if (!status.ok() && !IsInvalid(status)) {
    return status;
  }
  response.set_valid(status.ok());
  response.set_failure(std::string(status.message()));
  if (response.failure() != row.message.damage()) {
    MT_RETURN_IF_ERROR(MarkDamaged(name, response.failure()));
  }
  return response;
}

absl::StatusOr<std::unique_ptr<ReadableFile>> CheckpointCatalog::OpenFile(const std::string& name,
                                                                          const std::string& path) {
  MT_ASSIGN_OR_RETURN(const std::vector<v1::CheckpointFile> files, Files(name));
  const bool is_there = std::any_of(files.begin(), files.end(),
                                    [&path](const auto& file) { return file.path() == path; });
  if (!is_there) {
    return WithReason(absl::NotFoundError(absl::StrCat(name, " has no file \"", path, "\"")),
                      "FILE_NOT_FOUND", {{"checkpoint", name}, {"path", path}});
  }
  MT_ASSIGN_OR_RETURN(const Numbered<v1::Checkpoint> row, Get(name));
  return parts_.disk.OpenForReading(absl::StrCat(row.message.path(), "/", path));
}

}  // namespace megatrain
