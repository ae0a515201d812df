#ifndef SERVER_CHECKPOINTS_CHECKPOINT_FIGURES_H_
#define SERVER_CHECKPOINTS_CHECKPOINT_FIGURES_H_

#include <vector>

#include "absl/time/time.h"
#include "megatrain/v1/job_service.pb.h"
#include "runtime/checkpoint/training_log.h"

namespace megatrain {

// What a checkpoint's log says, as the events that told of it, or should have: `step` and
// `evaluation`. Of their times it only knows that they were over when it was made.
std::vector<v1::JobEvent> EventsOfLog(const TrainingLog& log, absl::Time create_time);

}  // namespace megatrain

#endif  // SERVER_CHECKPOINTS_CHECKPOINT_FIGURES_H_
