// What the controller needs of checkpoints: the seam to their catalogue.

#ifndef SERVER_JOBS_JOB_CHECKPOINTS_H_
#define SERVER_JOBS_JOB_CHECKPOINTS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "megatrain/v1/checkpoint.pb.h"
#include "megatrain/v1/job_service.pb.h"
#include "server/jobs/job_record.h"

namespace megatrain {

// From where a job goes on.
struct JobStart {
  std::optional<v1::Checkpoint> checkpoint;  // none: from its beginning
  // In words, why it does not go on from a later one; empty when there is none that was, or should
  // be, later.
  std::string passed_over;
};

// Thread-safe. Calls block on the store, and on the disk for a manifest or a name; a tree is
// removed in the background. An error of the disk leaves everything as it was: RESOURCE_EXHAUSTED
// when it is full.
class JobCheckpoints {
 public:
  virtual ~JobCheckpoints() = default;

  // The folder in which the engine writes the job's checkpoints; made when it is not there.
  virtual absl::StatusOr<std::string> Folder(const v1::Job& job) = 0;

  // From where the job, which does not run, goes on by its wishes: the newest that is not damaged,
  // also one that the engine committed and told nobody of. Of a fork that has none yet, the one it
  // was forked from: NOT_FOUND when that is gone or damaged.
  virtual absl::StatusOr<JobStart> StartOf(const JobRecord& record) = 0;

  // What a checkpoint remembers of the steps and evaluations up to it, oldest first: events `step`
  // and `evaluation`, without sequences. DATA_LOSS when it is damaged.
  virtual absl::StatusOr<std::vector<v1::JobEvent>> Figures(const v1::Checkpoint& checkpoint) = 0;

  // Takes in what the engine committed as `checkpoint_id`, and removes what the job's retention
  // does not keep any longer. Idempotent. NOT_FOUND or DATA_LOSS when no valid checkpoint is there.
  virtual absl::StatusOr<v1::Checkpoint> Commit(const JobRecord& record,
                                                const std::string& checkpoint_id) = 0;

  // An attempt of the job has ended, perhaps in the middle of a save: takes in what the engine
  // committed and told nobody of, and removes what the job's retention does not keep. What fails is
  // done later, or at the next start.
  virtual void Settle(const JobRecord& record) = 0;

  // The job's best checkpoint by evaluation; empty when it has none.
  virtual absl::StatusOr<std::string> Best(const v1::Job& job) = 0;

  // No job goes on from that very checkpoint any more, by its uid. OK when it does not exist.
  virtual absl::Status MarkDamaged(const v1::Checkpoint& checkpoint, const std::string& damage) = 0;

  // RESOURCE_EXHAUSTED, with the reason DISK_SPACE_EXCEEDED and the numbers, when the disk has no
  // room for the next checkpoint of the job.
  virtual absl::Status CheckRoom(const v1::Job& job) = 0;
};

}  // namespace megatrain

#endif  // SERVER_JOBS_JOB_CHECKPOINTS_H_
