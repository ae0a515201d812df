#include "server/checkpoints/checkpoint_rows.h"

#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/checkpoint/manifest.h"
#include "server/errors/errors.h"
#include "server/jobs/job_record.h"
#include "server/names/resource_name.h"
#include "server/resources/checkpoint_trigger.h"
#include "server/resources/timestamp.h"

namespace megatrain {
namespace {

// Rows have no state: what is there is complete.
constexpr int kNoState = 0;

void Touch(v1::Checkpoint& checkpoint) {
  const int64_t revision = checkpoint.etag().empty() ? 0 : std::stoll(checkpoint.etag());
  checkpoint.set_etag(absl::StrCat(revision + 1));
}

// Marks the whole one with the lowest loss of `job`, of several the newest. A loss that is no
// number is none.
absl::Status MarkBest(Connection& connection, const std::string& job) {
  MT_ASSIGN_OR_RETURN(CheckpointRows rows,
                      ListResources<v1::Checkpoint>(connection, {.collection = job}));
  const v1::Checkpoint* best = nullptr;
  for (const auto& [number, row] : rows) {
    if (row.has_evaluation_loss() && !std::isnan(row.evaluation_loss()) && row.damage().empty() &&
        (best == nullptr || row.evaluation_loss() < best->evaluation_loss())) {
      best = &row;
    }
  }
  for (auto& [number, row] : rows) {
    if (row.best() == (&row == best)) {
      continue;
    }
    row.set_best(&row == best);
    Touch(row);
    MT_RETURN_IF_ERROR(UpdateResource(connection, row.name(), kNoState, row));
  }
  return absl::OkStatus();
}

// The row of that name, if it is not another checkpoint's by now: NOT_FOUND.
absl::StatusOr<v1::Checkpoint> FindSame(Connection& connection, const v1::Checkpoint& checkpoint) {
  MT_ASSIGN_OR_RETURN(v1::Checkpoint row,
                      FindResource<v1::Checkpoint>(connection, checkpoint.name()));
  return row.uid() == checkpoint.uid() ? absl::StatusOr<v1::Checkpoint>(std::move(row))
                                       : ResourceNotFound(checkpoint.name());
}

template <typename List>
absl::StatusOr<CheckpointRows> ReadRows(Database& database, const List& list) {
  CheckpointRows rows;
  MT_RETURN_IF_ERROR(database.Read([&](Connection& connection) -> absl::Status {
    MT_ASSIGN_OR_RETURN(rows, list(connection));
    return absl::OkStatus();
  }));
  return rows;
}

}  // namespace

v1::Checkpoint DescribeCheckpoint(const std::string& job, const Checkpoint& found) {
  const TrainingProgress& progress = found.manifest.progress;
  v1::Checkpoint checkpoint;
  checkpoint.set_name(absl::StrCat(job, "/checkpoints/", found.id));
  *checkpoint.mutable_create_time() = TimestampOf(found.manifest.create_time);
  *checkpoint.mutable_update_time() = checkpoint.create_time();
  checkpoint.set_step(progress.step);
  checkpoint.set_trigger(TriggerToProto(found.manifest.trigger));
  checkpoint.set_size_bytes(found.SizeBytes());
  checkpoint.set_path(found.path);
  if (progress.last_evaluation.has_value() && progress.last_evaluation->step == progress.step) {
    checkpoint.set_evaluation_loss(progress.last_evaluation->loss);
  }
  return checkpoint;
}

absl::StatusOr<CheckpointRows> ReadCheckpoints(Database& database, const ResourceQuery& query) {
  return ReadRows(database, [&query](Connection& connection) {
    return ListResources<v1::Checkpoint>(connection, query);
  });
}

absl::StatusOr<CheckpointRows> ReadCheckpointsOf(Database& database,
                                                 const std::vector<std::string>& jobs) {
  return ReadRows(database, [&jobs](Connection& connection) {
    return ListResourcesOf<v1::Checkpoint>(connection, jobs);
  });
}

absl::StatusOr<Numbered<v1::Checkpoint>> ReadCheckpoint(Database& database,
                                                        const std::string& name) {
  MT_ASSIGN_OR_RETURN(const CheckpointRows rows,
                      ReadCheckpoints(database, {.collection = JobOfCheckpoint(name)}));
  for (const Numbered<v1::Checkpoint>& row : rows) {
    if (row.message.name() == name) {
      return row;
    }
  }
  return ResourceNotFound(name);
}

absl::Status ForgetCheckpoint(Database& database, const v1::Checkpoint& checkpoint) {
  return database.Write([&checkpoint](Connection& connection) {
    return DeleteCheckpointRow(connection, checkpoint);
  });
}

absl::StatusOr<v1::Checkpoint> InsertCheckpoint(Connection& connection, v1::Checkpoint described) {
  absl::StatusOr<v1::Checkpoint> known = FindResource<v1::Checkpoint>(connection, described.name());
  if (known.ok() && TimeOf(known->create_time()) == TimeOf(described.create_time())) {
    return known;
  }
  if (known.ok()) {
    described.set_pinned(known->pinned());
    MT_RETURN_IF_ERROR(DeleteResource(connection, described.name()));
  } else if (!absl::IsNotFound(known.status())) {
    return known.status();
  }
  described.set_uid(NewUid());
  Touch(described);
  const std::string job = JobOfCheckpoint(described.name());
  MT_RETURN_IF_ERROR(InsertResource(connection, job, described.name(), kNoState, described));
  MT_RETURN_IF_ERROR(MarkBest(connection, job));
  return FindResource<v1::Checkpoint>(connection, described.name());
}

absl::StatusOr<v1::Checkpoint> ChangeCheckpoint(
    Connection& connection, const v1::Checkpoint& checkpoint, absl::Time now,
    const std::function<void(v1::Checkpoint&)>& change) {
  MT_ASSIGN_OR_RETURN(v1::Checkpoint row, FindSame(connection, checkpoint));
  change(row);
  *row.mutable_update_time() = TimestampOf(now);
  Touch(row);
  MT_RETURN_IF_ERROR(UpdateResource(connection, row.name(), kNoState, row));
  MT_RETURN_IF_ERROR(MarkBest(connection, JobOfCheckpoint(row.name())));
  return FindResource<v1::Checkpoint>(connection, row.name());
}

absl::Status DeleteCheckpointRow(Connection& connection, const v1::Checkpoint& checkpoint) {
  const absl::StatusOr<v1::Checkpoint> row = FindSame(connection, checkpoint);
  if (absl::IsNotFound(row.status())) {
    return absl::OkStatus();
  }
  MT_RETURN_IF_ERROR(row.status());
  MT_RETURN_IF_ERROR(DeleteResource(connection, row->name()));
  return MarkBest(connection, JobOfCheckpoint(row->name()));
}

}  // namespace megatrain
