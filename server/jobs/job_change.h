// A job with changes that are not in the store yet.

#ifndef SERVER_JOBS_JOB_CHANGE_H_
#define SERVER_JOBS_JOB_CHANGE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "megatrain/engine/v1/engine.pb.h"
#include "megatrain/v1/checkpoint.pb.h"
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
  const JobRecord& record() const { return record_; }

  // Takes over what users wish by now; that is in the store already.
  void SetWishes(const JobWishes& wishes) { record_.wishes = wishes; }
  // A checkpoint, or the news that it failed, came after the first `count` saves were wished.
  void SetSavesAnswered(int64_t count);

  void SetState(v1::JobState state, absl::Time now);
  void SetPhase(const std::string& phase, absl::Time now);
  // The engine knows the data's longest row, so that its plan is the tighter one.
  void SetStarted(const engine::v1::Started& started, absl::Time now);
  void SetOutputVersion(const std::string& name) { record_.job.set_output_version(name); }

  // Waits for the next save of something else.
  void SetPeakHostBytes(int64_t size_bytes) { record_.job.set_peak_host_bytes(size_bytes); }

  // Takes the step as the last one and estimates the end from the mean time of all steps.
  void AddStep(const v1::StepRecord& step);

  // The job goes on from that checkpoint; null: it begins.
  void SetStart(const v1::Checkpoint* checkpoint);

  // Committed checkpoints end a hold and the count of crashes. `best`: the job's best one.
  void AddCheckpoint(const v1::Checkpoint& checkpoint, const std::string& best, absl::Time now);
  // The job holds.
  void AddCheckpointFailure(const v1::CheckpointFailure& failure, absl::Time now);
  void AddEvaluation(const v1::EvaluationRecord& evaluation);
  // A step or an evaluation that only a checkpoint told of.
  void AddRemembered(const v1::JobEvent& event);
  void SetStoppedEarly(bool stopped_early) { record_.job.set_stopped_early(stopped_early); }

  // Paused, with its figures.
  void Pause(absl::Time now);
  // From PAUSED back into the queue.
  void Resume(absl::Time now);
  // Waits in the queue until it is resumed, or not any more.
  void SetHeld(bool held, absl::Time now);
  // Why it waits in the queue, or what is to be known of its start.
  void SetReason(const v1::JobReason& reason, absl::Time now);
  // Before another change, which tells of it.
  void ClearReason() { record_.job.clear_reason(); }

  // Makes it final.
  void End(v1::JobState state, const v1::JobReason& reason, absl::Time now);

  // Back into the queue; `counts`: as the next attempt, after a crash.
  void PutBack(const v1::JobReason& reason, bool counts, absl::Time now);

  // Back into the queue, trained: it waits with its result until that can be stored.
  void WaitWithResult(const v1::JobReason& reason, absl::Time now);

  // Attempts from its newest checkpoint on are left after this one.
  bool CanRetry() const;

  // Something is to be saved.
  bool changed() const { return changed_; }

  // Writes what changed. After an error everything is still to be saved.
  absl::Status Save(JobStore& store);

 private:
  v1::JobEvent& AddEvent(absl::Time now);
  void AddStateEvent(absl::Time now);

  JobRecord record_;
  std::vector<v1::JobEvent> events_;
  bool changed_ = false;
  absl::Time first_step_began_;
  int64_t steps_before_ = -1;  // done before the first that was added; -1: none was added
};

// For PutBack and End.
v1::JobReason MakeReason(const std::string& code, const std::string& message);

}  // namespace megatrain

#endif  // SERVER_JOBS_JOB_CHANGE_H_
