// What users can wish of a job, and when.

#ifndef SERVER_JOBS_JOB_WISH_H_
#define SERVER_JOBS_JOB_WISH_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "server/jobs/job_record.h"

namespace megatrain {

// The phase of a job whose save failed: it waits with its state in the engine's memory.
inline constexpr char kHoldingPhase[] = "holding";

// The phase of a job whose weights are complete on disk and become a version.
inline constexpr char kPublishingPhase[] = "publishing";

struct JobWish {
  enum class Kind {
    kCancel,
    kPause,   // stop with a checkpoint, or wait in the queue, until kResume
    kSave,    // a checkpoint now
    kResume,  // undo kPause; of a job that holds or waits, try again now
  };
  Kind kind = Kind::kCancel;
  // Of kResume: the checkpoint to go on from, and the highest number of any of the job's then.
  std::string start_checkpoint;
  int64_t start_after_number = 0;
};

// It waits in the queue for nothing but that its result can be stored: it needs no engine.
inline bool IsTrained(const v1::Job& job) {
  return job.state() == v1::JOB_STATE_QUEUED && job.phase() == kPublishingPhase;
}

// Puts `wish` into `record.wishes`. FAILED_PRECONDITION where it makes no sense: JOB_ENDED when the
// job is final (but for another cancel of a cancelled one), JOB_CANCELLING, JOB_NOT_RUNNING for
// kSave, JOB_NOT_PAUSED for kResume, JOB_TRAINED for a start of one that is trained.
absl::Status ApplyWish(const JobWish& wish, JobRecord& record);

// The part of ApplyWish for kCancel.
absl::Status CheckCancellable(const v1::Job& job);

// OK, or the FAILED_PRECONDITION of a job that is final.
absl::Status CheckNotEnded(const v1::Job& job);

}  // namespace megatrain

#endif  // SERVER_JOBS_JOB_WISH_H_
