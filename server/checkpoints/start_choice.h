// From which of its checkpoints a job goes on. Pure.

#ifndef SERVER_CHECKPOINTS_START_CHOICE_H_
#define SERVER_CHECKPOINTS_START_CHOICE_H_

#include <vector>

#include "megatrain/v1/checkpoint.pb.h"
#include "server/jobs/job_checkpoints.h"
#include "server/jobs/job_record.h"
#include "server/resources/resource_table.h"

namespace megatrain {

// The user's wish where to go on from still counts: nothing was written since.
bool StartWishStands(const JobWishes& wishes,
                     const std::vector<Numbered<v1::Checkpoint>>& newest_first);

// Of all checkpoints of the job itself: the newest that is not damaged; while a wish stands, the
// wished one, or of those before it the one of the highest step.
JobStart ChooseStart(const JobRecord& record,
                     const std::vector<Numbered<v1::Checkpoint>>& newest_first);

}  // namespace megatrain

#endif  // SERVER_CHECKPOINTS_START_CHOICE_H_
