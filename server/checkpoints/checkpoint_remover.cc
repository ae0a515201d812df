#include "server/checkpoints/checkpoint_remover.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "server/checkpoints/checkpoint_rows.h"
#include "server/checkpoints/retention.h"
#include "server/checkpoints/start_choice.h"
#include "server/database/connection.h"
#include "server/database/request_log.h"
#include "server/errors/errors.h"
#include "server/jobs/job_checkpoints.h"
#include "server/resources/resource_table.h"

namespace megatrain {

void CheckpointRemover::Retain(const JobRecord& record) {
  if (const absl::Status status = TryRetain(record); !status.ok()) {
    parts_.report(absl::StrCat("old checkpoints of ", record.job.name(),
                               " stay until the next one: ", std::string(status.message())));
  }
}

absl::Status CheckpointRemover::TryRetain(const JobRecord& record) {
  MutexLock lock(&mutex_);
  MT_ASSIGN_OR_RETURN(const CheckpointRows rows,
                      ReadCheckpoints(parts_.database, {.collection = record.job.name()}));
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
    rules.rewound_step = StepOfCheckpoint(wished);
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
absl::Status CheckpointRemover::RemoveOld(const v1::Checkpoint& row) {
  if (uses_.IsWanted(row.uid())) {
    return absl::OkStatus();
  }
  MT_RETURN_IF_ERROR(folders_.MoveAway(row));
  if (const absl::Status forgotten = ForgetCheckpoint(parts_.database, row); !forgotten.ok()) {
    folders_.MoveBack(row);
    return forgotten;
  }
  parts_.on_retention(row.size_bytes());
  folders_.RemoveLater(row);
  return absl::OkStatus();
}

absl::Status CheckpointRemover::CheckRemovable(const v1::Checkpoint& row) {
  if (row.pinned()) {
    return PreconditionFailed(row.name(), "CHECKPOINT_PINNED",
                              absl::StrCat(row.name(), " is pinned: unpin it first"));
  }
  MT_ASSIGN_OR_RETURN(const std::set<std::string> needed, NeededByForks());
  std::string needed_by = needed.contains(row.name()) ? "a fork that has not ended" : "";
  const absl::StatusOr<JobRecord> record = parts_.jobs.Get(JobOfCheckpoint(row.name()));
  if (record.ok() && !IsFinal(record->job.state())) {
    MT_ASSIGN_OR_RETURN(const CheckpointRows rows,
                        ReadCheckpoints(parts_.database, {.collection = record->job.name()}));
    MT_ASSIGN_OR_RETURN(const JobStart start, ChooseStartOrSource(*record, rows, parts_.database));
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

absl::StatusOr<std::set<std::string>> CheckpointRemover::NeededByForks() {
  MT_ASSIGN_OR_RETURN(const std::vector<JobRecord> active, parts_.jobs.Active());
  std::set<std::string> needed;
  for (const JobRecord& record : active) {
    if (!record.job.forked_from().empty() && record.job.last_checkpoint().empty()) {
      needed.insert(record.job.forked_from());
    }
  }
  return needed;
}

absl::Status CheckpointRemover::Delete(const RequestKey& key, const std::string& name,
                                       bool validate_only) {
  MT_ASSIGN_OR_RETURN(const std::optional<std::string> known, FindAnswer(parts_.database, key));
  if (known.has_value()) {
    return absl::OkStatus();
  }
  MutexLock lock(&mutex_);
  MT_ASSIGN_OR_RETURN(const Numbered<v1::Checkpoint> row, ReadCheckpoint(parts_.database, name));
  MT_RETURN_IF_ERROR(CheckRemovable(row.message));
  if (validate_only) {
    return absl::OkStatus();
  }
  MT_RETURN_IF_ERROR(folders_.MoveAway(row.message));
  absl::Status forgotten =
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

absl::StatusOr<CheckpointInUse> CheckpointRemover::Use(const std::string& name) {
  MutexLock lock(&mutex_);
  MT_ASSIGN_OR_RETURN(const Numbered<v1::Checkpoint> row, ReadCheckpoint(parts_.database, name));
  return uses_.Begin(row.message);
}

absl::StatusOr<v1::Checkpoint> CheckpointRemover::SetPinned(const RequestKey& key,
                                                            const std::string& name, bool pinned,
                                                            const std::string& etag) {
  MutexLock lock(&mutex_);
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

}  // namespace megatrain
