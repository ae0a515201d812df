#include "server/checkpoints/checkpoint_catalog.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/status_macros.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/training_log.h"
#include "runtime/checkpoint/verify_checkpoint.h"
#include "server/checkpoints/checkpoint_figures.h"
#include "server/checkpoints/checkpoint_folders.h"
#include "server/checkpoints/checkpoint_rows.h"
#include "server/checkpoints/start_choice.h"
#include "server/database/connection.h"
#include "server/errors/errors.h"
#include "server/jobs/job_record.h"

namespace megatrain {
namespace {

// Beside a job that trains.
constexpr int kVerifyThreads = 2;
constexpr int64_t kMaxManifestBytes = int64_t{256} << 20;

}  // namespace

absl::Status CheckpointDamaged(const std::string& name, const std::string& damage) {
  return PreconditionFailed(name, "CHECKPOINT_DAMAGED", absl::StrCat(name, " is damaged: ", damage),
                            {{"checkpoint", name}});
}

absl::StatusOr<std::unique_ptr<CheckpointCatalog>> CheckpointCatalog::Open(const Parts& parts) {
  std::unique_ptr<CheckpointCatalog> catalog(new CheckpointCatalog(parts));
  MT_RETURN_IF_ERROR(parts.disk.MakeFolders(parts.jobs_folder));
  MT_ASSIGN_OR_RETURN(const std::vector<JobRecord> known, catalog->reconciler_.ReconcileAll());
  for (const JobRecord& record : known) {
    catalog->remover_.Retain(record);
  }
  return catalog;
}

absl::StatusOr<std::string> CheckpointCatalog::Folder(const v1::Job& job) {
  std::string folder = reconciler_.FolderOf(job.name());
  MT_RETURN_IF_ERROR(parts_.disk.MakeFolders(folder));
  return folder;
}

absl::StatusOr<JobStart> CheckpointCatalog::StartOf(const JobRecord& record) {
  const absl::StatusOr<std::vector<CheckpointListing::Invalid>> invalid =
      reconciler_.RestoreAndAdopt(record.job.name());
  MT_ASSIGN_OR_RETURN(const CheckpointRows rows,
                      ReadCheckpoints(parts_.database, {.collection = record.job.name()}));
  MT_ASSIGN_OR_RETURN(JobStart start, ChooseStartOrSource(record, rows, parts_.database));
  MT_RETURN_IF_ERROR(invalid.status());
  MT_RETURN_IF_ERROR(CheckUnread(*invalid, start, record, rows));
  return start;
}

absl::StatusOr<std::vector<v1::JobEvent>> CheckpointCatalog::Figures(
    const v1::Checkpoint& checkpoint) {
  MT_ASSIGN_OR_RETURN(const Checkpoint opened, OpenCheckpoint(checkpoint.path(), parts_.disk));
  MT_ASSIGN_OR_RETURN(const TrainingLog log, ReadTrainingLog(opened, parts_.disk));
  return EventsOfLog(log, opened.manifest.create_time);
}

absl::StatusOr<v1::Checkpoint> CheckpointCatalog::Commit(const JobRecord& record,
                                                         const std::string& checkpoint_id) {
  const std::string& job = record.job.name();
  const absl::StatusOr<Checkpoint> found =
      OpenCheckpoint(absl::StrCat(reconciler_.FolderOf(job), "/", checkpoint_id), parts_.disk);
  if (IsInvalidCheckpoint(found.status())) {
    return absl::DataLossError(std::string(found.status().message()));
  }
  MT_RETURN_IF_ERROR(found.status());
  v1::Checkpoint committed;
  MT_RETURN_IF_ERROR(parts_.database.Write([&](Connection& connection) -> absl::Status {
    MT_ASSIGN_OR_RETURN(committed, InsertCheckpoint(connection, DescribeCheckpoint(job, *found)));
    return absl::OkStatus();
  }));
  remover_.Retain(record);
  return committed;
}

void CheckpointCatalog::Settle(const JobRecord& record) {
  const absl::Status taken_in = reconciler_.RestoreAndAdopt(record.job.name()).status();
  if (!taken_in.ok()) {
    reconciler_.ReportLeft(record.job.name(), taken_in);
    return;
  }
  remover_.Retain(record);
}

absl::StatusOr<std::string> CheckpointCatalog::Best(const v1::Job& job) {
  MT_ASSIGN_OR_RETURN(const CheckpointRows rows,
                      ReadCheckpoints(parts_.database, {.collection = job.name()}));
  for (const auto& [number, row] : rows) {
    if (row.best()) {
      return row.name();
    }
  }
  return std::string();
}

absl::Status CheckpointCatalog::Describe(const std::vector<v1::Job*>& jobs) {
  std::map<std::string, v1::Job*> by_name;
  std::vector<std::string> names;
  for (v1::Job* job : jobs) {
    job->clear_last_checkpoint();
    job->clear_best_checkpoint();
    by_name[job->name()] = job;
    names.push_back(job->name());
  }
  MT_ASSIGN_OR_RETURN(const CheckpointRows rows, ReadCheckpointsOf(parts_.database, names));
  for (const auto& [number, row] : rows) {
    v1::Job& job = *by_name.at(JobOfCheckpoint(row.name()));
    if (job.last_checkpoint().empty() && row.damage().empty()) {
      job.set_last_checkpoint(row.name());
    }
    if (row.best()) {
      job.set_best_checkpoint(row.name());
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<TrainingOrder> CheckpointCatalog::OrderOf(const v1::Checkpoint& checkpoint) {
  MT_ASSIGN_OR_RETURN(Checkpoint opened, OpenCheckpoint(checkpoint.path(), parts_.disk));
  return std::move(opened.manifest.order);
}

absl::Status CheckpointCatalog::MarkDamaged(const v1::Checkpoint& checkpoint,
                                            const std::string& damage) {
  const absl::Status status = parts_.database.Write([&](Connection& connection) {
    return ChangeCheckpoint(connection, checkpoint, parts_.clock.WallNow(),
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
  return ReadCheckpoint(parts_.database, name);
}

absl::StatusOr<CheckpointInUse> CheckpointCatalog::Use(const std::string& name) {
  return remover_.Use(name);
}

absl::StatusOr<CheckpointInUse> CheckpointCatalog::UseUndamaged(const std::string& name) {
  MT_ASSIGN_OR_RETURN(CheckpointInUse found, Use(name));
  if (!found->damage().empty()) {
    return CheckpointDamaged(name, found->damage());
  }
  return found;
}

absl::StatusOr<std::vector<Numbered<v1::Checkpoint>>> CheckpointCatalog::List(
    const std::string& job, int64_t before_number, int64_t limit) {
  return ReadCheckpoints(
      parts_.database,
      {.collection = job.empty() ? "jobs/" : job, .before_number = before_number, .limit = limit});
}

absl::StatusOr<int64_t> CheckpointCatalog::LastNumber(const std::string& job) {
  // Whoever goes back does so since the newest cannot be read.
  reconciler_.Adopt(job).status().IgnoreError();
  MT_ASSIGN_OR_RETURN(const CheckpointRows rows, List(job, 0, 1));
  return rows.empty() ? 0 : rows.front().number;
}

absl::StatusOr<std::vector<v1::CheckpointFile>> CheckpointCatalog::Files(const std::string& name) {
  MT_ASSIGN_OR_RETURN(const CheckpointInUse row, Use(name));
  remover_.NoteReader(*row);
  const std::string& path = row->path();
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
  return remover_.SetPinned(key, name, pinned, etag);
}

absl::Status CheckpointCatalog::Delete(const RequestKey& key, const std::string& name,
                                       bool validate_only) {
  return remover_.Delete(key, name, validate_only);
}

absl::StatusOr<v1::VerifyCheckpointResponse> CheckpointCatalog::Verify(
    const std::string& name, const ByteProgress& progress) {
  MT_ASSIGN_OR_RETURN(const CheckpointInUse row, Use(name));
  v1::VerifyCheckpointResponse response;
  const absl::StatusOr<Checkpoint> found = OpenCheckpoint(row->path(), parts_.disk);
  absl::Status status = found.status();
  if (found.ok()) {
    status = VerifyCheckpoint(*found, kVerifyThreads, parts_.disk, progress);
    response.set_verified_bytes(found->SizeBytes());
  }
  if (!status.ok() && !IsInvalidCheckpoint(status)) {
    return status;
  }
  response.set_valid(status.ok());
  response.set_failure(std::string(status.message()));
  if (response.failure() != row->damage()) {
    MT_RETURN_IF_ERROR(MarkDamaged(*row, response.failure()));
  }
  return response;
}

absl::StatusOr<CheckpointCatalog::OpenedFile> CheckpointCatalog::OpenFile(const std::string& name,
                                                                          const std::string& path) {
  OpenedFile opened;
  MT_ASSIGN_OR_RETURN(opened.checkpoint, Use(name));
  MT_ASSIGN_OR_RETURN(const std::vector<v1::CheckpointFile> files, Files(name));
  const bool is_there = std::any_of(files.begin(), files.end(),
                                    [&path](const auto& file) { return file.path() == path; });
  if (!is_there) {
    return WithReason(absl::NotFoundError(absl::StrCat(name, " has no file \"", path, "\"")),
                      "FILE_NOT_FOUND", {{"checkpoint", name}, {"path", path}});
  }
  MT_ASSIGN_OR_RETURN(
      opened.file, parts_.disk.OpenForReading(absl::StrCat(opened.checkpoint->path(), "/", path)));
  return opened;
}

}  // namespace megatrain
