// A JobStore for simulations: it dies at writes and checks every write that passes.

#ifndef SERVER_JOBS_CRASHING_JOB_STORE_H_
#define SERVER_JOBS_CRASHING_JOB_STORE_H_

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "server/jobs/job_store.h"

namespace megatrain {

// What becomes of one write.
enum class WriteFate { kWorks, kDiskFull, kCrashBefore, kCrashAfter };

// Passes on to a store that outlives crashes. After a crash every call fails, until a new one of
// this class is made: the process is gone.
class CrashingJobStore final : public JobStore {
 public:
  using Fate = std::function<WriteFate()>;
  using Check = std::function<void(const JobRecord& before, const v1::Job& after,
                                   const std::vector<v1::JobEvent>& events)>;

  // `check` sees every update before it is written.
  CrashingJobStore(JobStore& base, Fate fate, Check check)
      : base_(base), fate_(std::move(fate)), check_(std::move(check)) {}

  bool crashed() const { return crashed_; }

  absl::StatusOr<v1::Job> Create(const RequestKey& key, const v1::Job& job) override {
    return Write<absl::StatusOr<v1::Job>>([&] { return base_.Create(key, job); });
  }
  absl::StatusOr<std::optional<v1::Job>> FindCreated(const RequestKey& key) override {
    return crashed_ ? Gone() : base_.FindCreated(key);
  }
  absl::StatusOr<JobRecord> Get(const std::string& name) override {
    return crashed_ ? Gone() : base_.Get(name);
  }
  absl::StatusOr<std::vector<JobRecord>> List(const Query& query) override {
    return crashed_ ? Gone() : base_.List(query);
  }
  absl::StatusOr<std::vector<JobRecord>> Active() override {
    return crashed_ ? Gone() : base_.Active();
  }
  absl::StatusOr<int64_t> RecordWish(const RequestKey& key, const std::string& name,
                                     const JobWish& wish) override {
    return Write<absl::StatusOr<int64_t>>([&] { return base_.RecordWish(key, name, wish); });
  }
  absl::Status Update(const JobRecord& record, std::vector<v1::JobEvent> events) override {
    return Write<absl::Status>([&] {
      check_(*base_.Get(record.job.name()), record.job, events);
      return base_.Update(record, std::move(events));
    });
  }
  absl::StatusOr<std::vector<v1::JobEvent>> Events(const std::string& name, int64_t after_sequence,
                                                   int limit) override {
    return crashed_ ? Gone() : base_.Events(name, after_sequence, limit);
  }

 private:
  static absl::Status Gone() { return absl::UnavailableError("the process is gone"); }

  template <typename Result, typename Work>
  Result Write(const Work& work) {
    if (crashed_) {
      return Gone();
    }
    switch (fate_()) {
      case WriteFate::kWorks:
        return work();
      case WriteFate::kDiskFull:
        return absl::ResourceExhaustedError("disk full");
      case WriteFate::kCrashAfter:
        static_cast<void>(work());
        [[fallthrough]];
      case WriteFate::kCrashBefore:
        crashed_ = true;
        return Gone();
    }
    return Gone();
  }

  JobStore& base_;
  const Fate fate_;
  const Check check_;
  bool crashed_ = false;
};

}  // namespace megatrain

#endif  // SERVER_JOBS_CRASHING_JOB_STORE_H_
