#include "server/checkpoints/checkpoint_catalog.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/status_macros.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/training_log.h"
#include "runtime/checkpoint/verify_checkpoint.h"
#include "server/checkpoints/checkpoint_figures.h"
#include "server/checkpoints/checkpoint_rows.h"
#include "server/checkpoints/retention.h"
#include "server/checkpoints/start_choice.h"
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

// 0 of one that has no row.
int64_t NumberOf(const std::string& name, const std::vector<Numbered<v1::Checkpoint>>& rows) {
  const auto row = std::find_if(rows.begin(), rows.end(),
                                [&name](const auto& each) { return each.message.name() == name; });
  return row == rows.end() ? 0 : row->number;
}

}  // namespace

absl::Status CheckpointDamaged(const std::string& name, const std::string& damage) {
  return PreconditionFailed(name, "CHECKPOINT_DAMAGED", absl::StrCat(name, " is damaged: ", damage),
                            {{"checkpoint", name}});
}

absl::StatusOr<std::unique_ptr<CheckpointCatalog>> CheckpointCatalog::Open(const Parts& parts) {
  std::unique_ptr<CheckpointCatalog> catalog(new CheckpointCatalog(parts));
  MT_RETURN_IF_ERROR(parts.disk.MakeFolders(parts.jobs_folder));
  MT_RETURN_IF_ERROR(catalog->Reconcile());
  return catalog;
}

absl::Status CheckpointCatalog::Reconcile() {
  MT_RETURN_IF_ERROR(CheckDisk());
  std::vector<JobRecord> known;
  MT_ASSIGN_OR_RETURN(const std::vector<std::string> ids,
                      parts_.disk.ListFolder(parts_.jobs_folder));
  for (const std::string& id : ids) {
    const std::string job = absl::StrCat("jobs/", id);
    const absl::StatusOr<JobRecord> record = parts_.jobs.Get(job);
    if (!IsResourceId(id) || !record.ok()) {
      continue;
    }
    known.push_back(*record);
    const absl::Status status = ReconcileFolder(job);
    if (!status.ok() && !absl::IsNotFound(status)) {
      parts_.report(absl::StrCat("the checkpoints of ", job,
                                 " stay as they are: ", std::string(status.message())));
    }
  }
  MT_ASSIGN_OR_RETURN(const Rows rows, List("", 0, -1));
  for (const auto& [number, row] : rows) {
    const auto found = OpenCheckpoint(row.path(), parts_.disk);
    if (IsInvalidCheckpoint(found.status())) {
      parts_.report(
          absl::StrCat(row.name(), " is forgotten: ", std::string(found.status().message())));
      MT_RETURN_IF_ERROR(ForgetRow(row));
    }
  }
  for (const JobRecord& record : known) {
    Retain(record);
  }
  return absl::OkStatus();
}

absl::Status CheckpointCatalog::ReconcileFolder(const std::string& job) {
  const std::string folder = FolderOf(job);
  MT_RETURN_IF_ERROR(CleanCheckpointFolder(folder, parts_.disk));
  MT_ASSIGN_OR_RETURN(const auto invalid, Adopt(job));
  for (const CheckpointListing::Invalid& each : invalid) {
    parts_.report(
        absl::StrCat(folder, "/", each.id,
                     IsInvalidCheckpoint(each.reason) ? " is no checkpoint" : " cannot be read",
                     " and stays where it is: ", std::string(each.reason.message())));
  }
  return absl::OkStatus();
}

// A folder that cannot be read is there.
absl::Status CheckpointCatalog::CheckDisk() {
  MT_ASSIGN_OR_RETURN(const Rows rows, List("", 0, -1));
  const bool is_there =
      rows.empty() || std::any_of(rows.begin(), rows.end(), [this](const auto& row) {
        const std::string folder = FolderOf(JobOfCheckpoint(row.message.name()));
        return !absl::IsNotFound(parts_.disk.ListFolder(folder).status());
      });
  return is_there
             ? absl::OkStatus()
             : absl::FailedPreconditionError(absl::StrCat(
                   parts_.jobs_folder, " has none of the ", rows.size(),
                   " checkpoints that the database knows: mount the disk that has them. If they "
                   "are gone for good, make the folder ",
                   FolderOf(JobOfCheckpoint(rows.front().message.name())),
                   ", and they are forgotten at the next start"));
}

absl::StatusOr<std::vector<CheckpointListing::Invalid>> CheckpointCatalog::Adopt(
    const std::string& job) {
  absl::StatusOr<CheckpointListing> listing = ListCheckpoints(FolderOf(job), parts_.disk);
  if (absl::IsNotFound(listing.status())) {
    return std::vector<CheckpointListing::Invalid>();
  }
  MT_RETURN_IF_ERROR(listing.status());
  MT_RETURN_IF_ERROR(parts_.database.Write([&](Connection& connection) -> absl::Status {
    for (const Checkpoint& found : listing->valid) {
      MT_RETURN_IF_ERROR(InsertCheckpoint(connection, DescribeCheckpoint(job, found)).status());
    }
    return absl::OkStatus();
  }));
  return std::move(listing->invalid);
}

absl::StatusOr<std::vector<CheckpointListing::Invalid>> CheckpointCatalog::RestoreAndAdopt(
    const std::string& job) {
  const absl::Status restored = RestoreReplacedCheckpoints(FolderOf(job), parts_.disk);
  if (!restored.ok() && !absl::IsNotFound(restored)) {
    return restored;
  }
  return Adopt(job);
}

absl::Status CheckpointCatalog::ForgetRow(const v1::Checkpoint& row) {
  return parts_.database.Write(
      [&row](Connection& connection) { return DeleteCheckpointRow(connection, row); });
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

absl::StatusOr<JobStart> CheckpointCatalog::StartOf(const JobRecord& record) {
  const absl::StatusOr<std::vector<CheckpointListing::Invalid>> invalid =
      RestoreAndAdopt(record.job.name());
  MT_ASSIGN_OR_RETURN(const Rows rows, RowsOf(record.job.name()));
  MT_ASSIGN_OR_RETURN(JobStart start, Choose(record, rows));
  MT_RETURN_IF_ERROR(invalid.status());
  const bool wished = StartWishStands(record.wishes, rows);
  const int64_t step = start.checkpoint.has_value() ? start.checkpoint->step() : -1;
  const std::string name = start.checkpoint.has_value() ? start.checkpoint->name() : "";
  const int64_t number = NumberOf(name, rows);
  for (const CheckpointListing::Invalid& each : *invalid) {
    const int64_t its_step = StepOfCheckpointId(each.id).value_or(-1);
    const int64_t its_number =
        NumberOf(absl::StrCat(record.job.name(), kCheckpoints, "/", each.id), rows);
    // Of a later step than one that was saved after it: the job went back behind it.
    const bool is_left = wished || (its_number != 0 && its_number < number);
    // It is that one or may be a later one, which the disk, or this version, does not give now.
    if (!IsInvalidCheckpoint(each.reason) && (its_step == step || (its_step > step && !is_left))) {
      return each.reason;
    }
  }
  return start;
}

absl::StatusOr<JobStart> CheckpointCatalog::Choose(const JobRecord& record, const Rows& rows) {
  JobStart start = ChooseStart(record, rows);
  const std::string& source_name = record.job.forked_from();
  if (start.checkpoint.has_value() || source_name.empty()) {
    return start;
  }
  MT_ASSIGN_OR_RETURN(const Numbered<v1::Checkpoint> source, Get(source_name));
  if (!source.message.damage().empty()) {
    return absl::NotFoundError(absl::StrCat(source_name, ", of which ", record.job.name(),
                                            " is a fork, is damaged: ", source.message.damage()));
  }
  start.checkpoint = source.message;
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
      OpenCheckpoint(absl::StrCat(FolderOf(job), "/", checkpoint_id), parts_.disk);
  if (IsInvalidCheckpoint(found.status())) {
    return absl::DataLossError(std::string(found.status().message()));
  }
  MT_RETURN_IF_ERROR(found.status());
  v1::Checkpoint committed;
  MT_RETURN_IF_ERROR(parts_.database.Write([&](Connection& connection) -> absl::Status {
    MT_ASSIGN_OR_RETURN(committed, InsertCheckpoint(connection, DescribeCheckpoint(job, *found)));
    return absl::OkStatus();
  }));
  Retain(record);
  return committed;
}

void CheckpointCatalog::Settle(const JobRecord& record) {
  const absl::Status taken_in = RestoreAndAdopt(record.job.name()).status();
  if (!taken_in.ok()) {
    parts_.report(absl::StrCat("the checkpoints of ", record.job.name(),
                               " stay as they are: ", std::string(taken_in.message())));
    return;
  }
  Retain(record);
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

void CheckpointCatalog::Retain(const JobRecord& record) {
  if (const absl::Status status = TryRetain(record); !status.ok()) {
    parts_.report(absl::StrCat("old checkpoints of ", record.job.name(),
                               " stay until the next one: ", std::string(status.message())));
  }
}

absl::Status CheckpointCatalog::TryRetain(const JobRecord& record) {
  MutexLock lock(&remove_mutex_);
  MT_ASSIGN_OR_RETURN(const Rows rows, RowsOf(record.job.name()));
  if (StartWishStands(record.wishes, rows)) {
    return absl::OkStatus();  // what it is to go on from may be none of the newest
  }
  RetentionRules rules;
  rules.keep_last = std::max<int64_t>(record.job.spec().checkpoint().keep_last(), 1);
  MT_ASSIGN_OR_RETURN(rules.needed, NeededByForks());
  if (const JobStart start = ChooseStart(record, rows); start.checkpoint.has_value()) {
    rules.needed.insert(start.checkpoint->name());
  }
  const std::string& wished = record.wishes.start_checkpoint;
  if (!wished.empty()) {
    rules.rewound_step = StepOfCheckpointId(wished.substr(wished.rfind('/') + 1)).value_or(0);
  }
  std::vector<v1::Checkpoint> newest_first;
  for (const auto& [number, row] : rows) {
    if (row.damage().empty() && !OpenCheckpoint(row.path(), parts_.disk).ok()) {
      continue;  // it stays as it is, and no other goes for it
    }
    newest_first.push_back(row);
    if (!wished.empty() && number <= record.wishes.start_after_number) {
      rules.before_rewind.insert(row.name());
    }
  }
  absl::Status status;
  for (const std::string& name : CheckpointsToRemove(newest_first, rules)) {
    const auto row = std::find_if(newest_first.begin(), newest_first.end(),
                                  [&name](const auto& each) { return each.name() == name; });
    status.Update(RemoveOld(*row));  // one that cannot be read keeps no other
  }
  return status;
}

// One that is used goes after a later commit.
absl::Status CheckpointCatalog::RemoveOld(const v1::Checkpoint& row) {
  if (uses_.IsWanted(row.uid())) {
    return absl::OkStatus();
  }
  MT_RETURN_IF_ERROR(folders_.MoveAway(row));
  if (const absl::Status forgotten = ForgetRow(row); !forgotten.ok()) {
    folders_.MoveBack(row);
    return forgotten;
  }
  parts_.on_retention(row.size_bytes());
  folders_.RemoveLater(row);
  return absl::OkStatus();
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

absl::Status CheckpointCatalog::Describe(v1::Job& job) {
  MT_ASSIGN_OR_RETURN(const Rows rows, RowsOf(job.name()));
  job.clear_last_checkpoint();
  job.clear_best_checkpoint();
  for (const auto& [number, row] : rows) {
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
  MT_ASSIGN_OR_RETURN(const Rows rows, RowsOf(JobOfCheckpoint(name)));
  for (const Numbered<v1::Checkpoint>& row : rows) {
    if (row.message.name() == name) {
      return row;
    }
  }
  return ResourceNotFound(name);
}

absl::StatusOr<CheckpointInUse> CheckpointCatalog::Use(const std::string& name) {
  MutexLock lock(&remove_mutex_);
  MT_ASSIGN_OR_RETURN(const Numbered<v1::Checkpoint> row, Get(name));
  return uses_.Begin(row.message);
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

absl::StatusOr<int64_t> CheckpointCatalog::LastNumber(const std::string& job) {
  Adopt(job).status().IgnoreError();  // whoever goes back does so since the newest cannot be read
  MT_ASSIGN_OR_RETURN(const Rows rows, List(job, 0, 1));
  return rows.empty() ? 0 : rows.front().number;
}

absl::StatusOr<std::vector<v1::CheckpointFile>> CheckpointCatalog::Files(const std::string& name) {
  MT_ASSIGN_OR_RETURN(const CheckpointInUse row, Use(name));
  uses_.NoteReader(*row);
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
  MutexLock lock(&remove_mutex_);
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
                ChangeCheckpoint(connection, row, parts_.clock.WallNow(),
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
    MT_ASSIGN_OR_RETURN(const Rows rows, RowsOf(record->job.name()));
    MT_ASSIGN_OR_RETURN(const JobStart start, Choose(*record, rows));
    if (start.checkpoint.has_value() && start.checkpoint->name() == row.name()) {
      needed_by = record->job.name();
    }
  }
  if (!needed_by.empty()) {
    return PreconditionFailed(row.name(), "CHECKPOINT_NEEDED",
                              absl::StrCat(row.name(), " is what ", needed_by, " goes on from"),
                              {{"needed_by", needed_by}});
  }
  return uses_.InUse(row.uid())
             ? PreconditionFailed(row.name(), "CHECKPOINT_IN_USE",
                                  absl::StrCat(row.name(), " is being read: try again after that"))
             : absl::OkStatus();
}

absl::Status CheckpointCatalog::Delete(const RequestKey& key, const std::string& name,
                                       bool validate_only) {
  MT_ASSIGN_OR_RETURN(const std::optional<std::string> known, FindAnswer(parts_.database, key));
  if (known.has_value()) {
    return absl::OkStatus();
  }
  MutexLock lock(&remove_mutex_);
  MT_ASSIGN_OR_RETURN(const Numbered<v1::Checkpoint> row, Get(name));
  MT_RETURN_IF_ERROR(CheckRemovable(row.message));
  if (validate_only) {
    return absl::OkStatus();
  }
  MT_RETURN_IF_ERROR(folders_.MoveAway(row.message));
  const absl::Status forgotten =
      WriteOnce(parts_.database, key, parts_.clock.WallNow(),
                [&](Connection& connection) -> absl::StatusOr<std::string> {
                  MT_RETURN_IF_ERROR(DeleteCheckpointRow(connection, row.message));
                  return std::string();
                })
          .status();
  if (!forgotten.ok()) {
    folders_.MoveBack(row.message);
    return forgotten;
  }
  folders_.RemoveLater(row.message);
  return absl::OkStatus();
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
