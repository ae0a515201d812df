// Rows of checkpoints in the table of resources; for the catalogue and its parts alone.

#ifndef SERVER_CHECKPOINTS_CHECKPOINT_ROWS_H_
#define SERVER_CHECKPOINTS_CHECKPOINT_ROWS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "megatrain/v1/checkpoint.pb.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "server/database/connection.h"
#include "server/database/database.h"
#include "server/resources/resource_table.h"

namespace megatrain {

// What clients see of a folder of `job`.
v1::Checkpoint DescribeCheckpoint(const std::string& job, const Checkpoint& found);

using CheckpointRows = std::vector<Numbered<v1::Checkpoint>>;  // newest first

absl::StatusOr<CheckpointRows> ReadCheckpoints(Database& database, const ResourceQuery& query);

// Of all these jobs.
absl::StatusOr<CheckpointRows> ReadCheckpointsOf(Database& database,
                                                 const std::vector<std::string>& jobs);

// NOT_FOUND.
absl::StatusOr<Numbered<v1::Checkpoint>> ReadCheckpoint(Database& database,
                                                        const std::string& name);

// The row of that very checkpoint, by its uid; OK when it is not there.
absl::Status ForgetCheckpoint(Database& database, const v1::Checkpoint& checkpoint);

// All others run in the caller's transaction.

// Makes the row that `described` needs, and gives it. One of the same name and time of making is
// left as it is; another one of that name is replaced, but for its pin.
absl::StatusOr<v1::Checkpoint> InsertCheckpoint(Connection& connection, v1::Checkpoint described);

// Changes the row of that very checkpoint, by its uid. NOT_FOUND.
absl::StatusOr<v1::Checkpoint> ChangeCheckpoint(Connection& connection,
                                                const v1::Checkpoint& checkpoint, absl::Time now,
                                                const std::function<void(v1::Checkpoint&)>& change);

// ForgetCheckpoint.
absl::Status DeleteCheckpointRow(Connection& connection, const v1::Checkpoint& checkpoint);

}  // namespace megatrain

#endif  // SERVER_CHECKPOINTS_CHECKPOINT_ROWS_H_
