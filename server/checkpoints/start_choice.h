// From which checkpoint a job goes on.

#ifndef SERVER_CHECKPOINTS_START_CHOICE_H_
#define SERVER_CHECKPOINTS_START_CHOICE_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "server/checkpoints/checkpoint_rows.h"
#include "server/database/database.h"
#include "server/jobs/job_checkpoints.h"
#include "server/jobs/job_record.h"

namespace megatrain {

// The user's wish where to go on from still counts: nothing was written since.
bool StartWishStands(const JobWishes& wishes, const CheckpointRows& rows);

// Of all checkpoints of the job itself: the newest that is not damaged; while a wish stands, the
// wished one, or of those before it the one of the highest step.
JobStart ChooseStart(const JobRecord& record, const CheckpointRows& rows);

// The same, and of a fork that has none the one it was forked from: NOT_FOUND when that is gone or
// damaged.
absl::StatusOr<JobStart> ChooseStartOrSource(const JobRecord& record, const CheckpointRows& rows,
                                             Database& database);

// Why one of `invalid` is not read, when it is the one that was chosen or may be a later one.
absl::Status CheckUnread(const std::vector<CheckpointListing::Invalid>& invalid,
                         const JobStart& start, const JobRecord& record,
                         const CheckpointRows& rows);

}  // namespace megatrain

#endif  // SERVER_CHECKPOINTS_START_CHOICE_H_
