// Where jobs and their events are kept.

#ifndef SERVER_JOBS_JOB_STORE_H_
#define SERVER_JOBS_JOB_STORE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "megatrain/v1/job.pb.h"
#include "megatrain/v1/job_service.pb.h"
#include "server/database/request_key.h"
#include "server/jobs/job_record.h"
#include "server/jobs/job_wish.h"

namespace megatrain {

// Events that are kept of one job: the newest ones.
inline constexpr int64_t kMaxEventsPerJob = 20'000;

// Thread-safe. What a call returned OK for is durable. An error of the disk leaves everything as
// it was: RESOURCE_EXHAUSTED when it is full. Calls block.
class JobStore {
 public:
  virtual ~JobStore() = default;

  // Accepts a job, which gets the next place in the order of acceptance. A repeat by `key` gets
  // the first answer. RESOURCE_EXISTS when the name is taken.
  virtual absl::StatusOr<v1::Job> Create(const RequestKey& key, const v1::Job& job) = 0;

  // What Create answered to a request of this key; none when it is new. INVALID_ARGUMENT when the
  // id was used for another request.
  virtual absl::StatusOr<std::optional<v1::Job>> FindCreated(const RequestKey& key) = 0;

  // NOT_FOUND when there is none of that name.
  virtual absl::StatusOr<JobRecord> Get(const std::string& name) = 0;

  struct Query {
    std::vector<v1::JobState> states;  // empty: all
    int64_t before_acceptance = 0;     // only jobs accepted before this one; 0: all
    int limit = 0;
  };
  // Newest first.
  virtual absl::StatusOr<std::vector<JobRecord>> List(const Query& query) = 0;

  // Every job that is not final, in the order of acceptance.
  virtual absl::StatusOr<std::vector<JobRecord>> Active() = 0;

  // Records a wish, once by `key`, and gives the sequence of the job's newest event then.
  // NOT_FOUND; else as ApplyWish.
  virtual absl::StatusOr<int64_t> RecordWish(const RequestKey& key, const std::string& name,
                                             const JobWish& wish) = 0;

  // Writes `record` but for its wishes, which are left as they are, and appends `events`, whose
  // sequences the store sets. NOT_FOUND when the job does not exist.
  virtual absl::Status Update(const JobRecord& record, std::vector<v1::JobEvent> events) = 0;

  // At most `limit` events with a sequence above `after_sequence`, oldest first.
  virtual absl::StatusOr<std::vector<v1::JobEvent>> Events(const std::string& name,
                                                           int64_t after_sequence, int limit) = 0;
};

}  // namespace megatrain

#endif  // SERVER_JOBS_JOB_STORE_H_
