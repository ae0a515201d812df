// A job with changes that are not in the store yet.

#ifndef SERVER_JOBS_JOB_CHANGE_H_
#define SERVER_JOBS_JOB_CHANGE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "megatrain/engine/v1/engine.pb.h"
#include "megatrain/v1/job.pb.h"
#include "megatrain/v1/job_service.pb.h"
#include "server/jobs/job_record.h"
#include "server/jobs/job_store.h"

namespace megatrain {

// Each change also makes the event that tells of it. Not thread-safe.
class JobChange {
 public:
  explicit JobChange(JobRecord record) : record_(std::move(record)) {}

  const v1::Job& job() const { return record_.job; }

  void SetState(v1::JobState state, absl::Time now);
  void SetPhase(const std::string& phase, absl::Time now);
  // The engine knows the data's longest row, so that its plan is the tighter one.
  void SetStarted(const engine::v1::Started& started, absl::Time now);
  void SetOutputVersion(const std::string& name) { record_.job.set_output_version(name); }

  // Waits for the next save of something else.
  void SetPeakHostBytes(int64_t size_bytes) { record_.job.set_peak_host_bytes(size_bytes); }

  // Takes the step as the last one and estimates the end from the mean time of all steps.
  void AddStep(const v1::StepRecord& step);

  // Makes it final.
  void End(v1::JobState state, const v1::JobReason& reason, absl::Time now);

  // Back into the queue, from its start; `counts`: as the next attempt.
  void PutBack(const v1::JobReason& reason, bool counts, absl::Time now);

  // Attempts are left after this one.
  bool CanRetry() const;

  // Something is to be saved.
  bool changed() const { return changed_; }

  // Writes what changed. After an error everything is still to be saved.
  absl::Status Save(JobStore& store);

 private:
  void AddStateEvent(absl::Time now);

  JobRecord record_;
  std::vector<v1::JobEvent> events_;
  bool changed_ = false;
  absl::Time first_step_began_;
};

// For PutBack and End.
v1::JobReason MakeReason(const std::string& code, const std::string& message);

}  // namespace megatrain

#endif  // SERVER_JOBS_JOB_CHANGE_H_
