#include "server/checkpoints/checkpoint_reconciler.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "server/checkpoints/checkpoint_folders.h"
#include "server/database/connection.h"
#include "server/names/resource_name.h"

namespace megatrain {
namespace {

absl::Status InsertAll(Connection& connection, const std::string& job,
                       const std::vector<Checkpoint>& valid) {
  for (const Checkpoint& found : valid) {
    MT_RETURN_IF_ERROR(InsertCheckpoint(connection, DescribeCheckpoint(job, found)).status());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<JobRecord>> CheckpointReconciler::ReconcileAll() {
  MT_ASSIGN_OR_RETURN(const CheckpointRows rows,
                      ReadCheckpoints(parts_.database, {.collection = "jobs/"}));
  MT_RETURN_IF_ERROR(CheckDisk(rows));
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
      ReportLeft(job, status);
    }
  }
  MT_RETURN_IF_ERROR(ForgetInvalid());
  return known;
}

// A folder that cannot be read is there.
absl::Status CheckpointReconciler::CheckDisk(const CheckpointRows& rows) {
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

absl::Status CheckpointReconciler::ReconcileFolder(const std::string& job) {
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

absl::Status CheckpointReconciler::ForgetInvalid() {
  MT_ASSIGN_OR_RETURN(const CheckpointRows rows,
                      ReadCheckpoints(parts_.database, {.collection = "jobs/"}));
  for (const auto& [number, row] : rows) {
    const absl::Status found = OpenCheckpoint(row.path(), parts_.disk).status();
    if (!IsInvalidCheckpoint(found)) {
      continue;
    }
    parts_.report(absl::StrCat(row.name(), " is forgotten: ", std::string(found.message())));
    MT_RETURN_IF_ERROR(ForgetCheckpoint(parts_.database, row));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<CheckpointListing::Invalid>> CheckpointReconciler::Adopt(
    const std::string& job) {
  absl::StatusOr<CheckpointListing> listing = ListCheckpoints(FolderOf(job), parts_.disk);
  if (absl::IsNotFound(listing.status())) {
    return std::vector<CheckpointListing::Invalid>();
  }
  MT_RETURN_IF_ERROR(listing.status());
  MT_RETURN_IF_ERROR(parts_.database.Write(
      [&](Connection& connection) { return InsertAll(connection, job, listing->valid); }));
  return std::move(listing->invalid);
}

absl::StatusOr<std::vector<CheckpointListing::Invalid>> CheckpointReconciler::RestoreAndAdopt(
    const std::string& job) {
  absl::Status restored = RestoreReplacedCheckpoints(FolderOf(job), parts_.disk);
  if (!restored.ok() && !absl::IsNotFound(restored)) {
    return restored;
  }
  return Adopt(job);
}

void CheckpointReconciler::ReportLeft(const std::string& job, const absl::Status& why) const {
  parts_.report(
      absl::StrCat("the checkpoints of ", job, " stay as they are: ", std::string(why.message())));
}

std::string CheckpointReconciler::FolderOf(const std::string& job) const {
  return absl::StrCat(parts_.jobs_folder, "/", JobIdOf(job), "/checkpoints");
}

}  // namespace megatrain
