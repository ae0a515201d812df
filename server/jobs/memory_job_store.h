// JobStore in memory, for simulations.

#ifndef SERVER_JOBS_MEMORY_JOB_STORE_H_
#define SERVER_JOBS_MEMORY_JOB_STORE_H_

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "runtime/base/mutex.h"
#include "server/jobs/job_store.h"

namespace megatrain {

class MemoryJobStore final : public JobStore {
 public:
  absl::StatusOr<v1::Job> Create(const RequestKey& key, const v1::Job& job) override;
  absl::StatusOr<std::optional<v1::Job>> FindCreated(const RequestKey& key) override;
  absl::StatusOr<JobRecord> Get(const std::string& name) override;
  absl::StatusOr<std::vector<JobRecord>> List(const Query& query) override;
  absl::StatusOr<std::vector<JobRecord>> Active() override;
  absl::StatusOr<int64_t> RecordWish(const RequestKey& key, const std::string& name,
                                     const JobWish& wish) override;
  absl::Status Update(const JobRecord& record, std::vector<v1::JobEvent> events) override;
  absl::StatusOr<std::vector<v1::JobEvent>> Events(const std::string& name, int64_t after_sequence,
                                                   int limit) override;

 private:
  struct Entry {
    JobRecord record;
    int64_t revision = 1;
    std::deque<v1::JobEvent> events;
  };
  struct Answer {
    std::string payload;
    std::string bytes;
  };

  static JobRecord Visible(const Entry& entry);
  static std::vector<JobRecord> AllVisible(const std::vector<const Entry*>& entries);
  // The answer to an earlier request of this key, nullptr when there is none.
  absl::StatusOr<const Answer*> FindAnswer(const RequestKey& key) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Remember(const RequestKey& key, std::string answer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  std::map<std::string, Entry> entries_ ABSL_GUARDED_BY(mutex_);  // by name
  std::map<std::pair<std::string, std::string>, Answer> answers_ ABSL_GUARDED_BY(mutex_);
  int64_t last_acceptance_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace megatrain

#endif  // SERVER_JOBS_MEMORY_JOB_STORE_H_
