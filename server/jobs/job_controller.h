// Decides what becomes of jobs. Handlers of calls only record wishes; this acts on them.

#ifndef SERVER_JOBS_JOB_CONTROLLER_H_
#define SERVER_JOBS_JOB_CONTROLLER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/jobs/job_change.h"
#include "server/jobs/job_checkpoints.h"
#include "server/jobs/job_log.h"
#include "server/jobs/job_materials.h"
#include "server/jobs/job_observer.h"
#include "server/jobs/job_record.h"
#include "server/jobs/job_runner.h"
#include "server/jobs/job_store.h"

namespace megatrain {

// One thread calls Tick; it runs one job at a time. Every change of state is in the store before
// it has an effect outside, so that a new controller over the same store goes on where a killed
// one stood: jobs that were under way wait again with one attempt more and go on from their newest
// checkpoint, or fail when that was the last attempt from it; a trained job is published without
// training it again. When the store cannot be written, nothing is lost: the change is tried again
// by the next tick. A job that finds memory or disk taken before its first step, or for its result,
// waits for a while, longer from time to time, and lets others pass.
class JobController {
 public:
  struct Parts {
    JobStore& store;
    JobRunner& runner;
    JobMaterials& materials;
    JobCheckpoints& checkpoints;
    JobLog& log;
    JobObserver& observer;
  };

  // `wake` is called from any thread when a tick would find news. All parts outlive this; late
  // answers of the materials may come after it is gone.
  JobController(const Parts& parts, std::function<void()> wake);
  ~JobController();

  JobController(const JobController&) = delete;
  JobController& operator=(const JobController&) = delete;

  // Takes in what happened and what is wished, and acts. Blocks on the store, the log and names on
  // the disk only. The result is that of the store, for the caller's log. A checkpoint that cannot
  // be read or recorded holds up nothing else: neither other jobs nor the wishes for its own.
  absl::Status Tick(absl::Time now);

  // From now on no job starts, and the one under way saves its state and goes back into the queue,
  // without an attempt more. Any thread.
  void Drain();

  // Nothing is under way. Any thread.
  bool Idle() const { return idle_; }

 private:
  struct Answer;  // of the materials
  class Inbox;
  struct Current;

  absl::Status Recover(absl::Time now);
  absl::Status RecoverOne(const JobRecord& record, absl::Time now);

  // Jobs that nothing works on; true when one was changed.
  absl::StatusOr<bool> TendWaiting(const std::vector<JobRecord>& jobs, absl::Time now);
  absl::StatusOr<bool> TendOne(const JobRecord& record, absl::Time now);
  absl::Status StartNext(const std::vector<JobRecord>& jobs, absl::Time now);

  // News of the current job: each changes `current_`, which Advance then saves and acts on.
  void TakeWishes(const std::vector<JobRecord>& jobs, absl::Time now);
  void TakeCancel(absl::Time now);
  void TakeDrain(absl::Time now);
  void TakePreemption(const std::vector<JobRecord>& jobs, absl::Time now);
  void TakePause(absl::Time now);
  void TakeSave(absl::Time now);
  // Of the saves that the engine was asked for, none waits for news any more.
  void AnswerSaves();
  // Whether the job does not run yet; its preparation is told to stop.
  bool EndPreparation();
  // Asks one that runs to save its state and stop, for a PAUSE, a DRAIN or a PREEMPT.
  void StopWithState(v1::CheckpointTrigger trigger, absl::Time now);
  // Of the engine; of a job that holds, this is another try.
  void AskToSave(v1::CheckpointTrigger trigger, bool then_stop, absl::Time now);
  void TakeAnswers(const std::vector<JobRecord>& jobs, absl::Time now);
  void TakePrepared(Answer& answer, absl::Time now);
  void TakeRunnerEvents(absl::Time now);
  void TakeRunnerEvent(const RunnerEvent& event, absl::Time now);
  void TakeEngineEvent(const engine::v1::RunJobEvent& event, absl::Time now);
  // What the engine saved and is not recorded yet: tried again for as long as the job runs.
  void CommitCheckpoints(absl::Time now);
  absl::Status TakeCheckpoint(const engine::v1::CheckpointSaved& saved, absl::Time now);
  void TakeCheckpointFailure(const v1::CheckpointFailure& failure, absl::Time now);
  void TakePaused(absl::Time now);
  void TakeTrained(const engine::v1::Finished& finished, absl::Time now);
  void TakeFailed(const v1::JobReason& reason, absl::Time now);
  void TakeRunEnd(const v1::JobReason& reason, bool counts_as_crash, absl::Time now);

  // Has the materials publish the result of a trained job; gives the number of that.
  int64_t Publish(const v1::Job& job);
  void PublishWaiting(const JobRecord& record, absl::Time now);
  bool IsBeingPublished(const std::string& job) const;
  void TakeWaitingPublication(const JobRecord& record, const Answer& answer, absl::Time now);
  // What a publication came to: the job has its version, or waits with its result, or goes on from
  // its newest checkpoint since there is none any more.
  void SettlePublication(JobChange& change, const Answer& answer, absl::Time now);

  absl::Status Advance(absl::Time now);
  void ChooseStart(absl::Time now);
  // Says from where it goes on, and why not from a later one.
  void TellStart(const JobStart& start, absl::Time now);
  // Completes the job's figures by those that only its start remembers.
  absl::Status RestoreFigures(const v1::Checkpoint& start, absl::Time now);
  bool Act();  // true: the stage changed, and there may be more to do
  void StartRun();
  void EndCurrent(v1::JobState state, const v1::JobReason& reason, absl::Time now);
  void PutBackCurrent(const v1::JobReason& reason, bool counts, absl::Time now);
  // The same without an attempt more, and not to be taken up before a while has passed.
  void TryLater(v1::JobReason reason, absl::Time now);
  // It is not to be taken up before a while has passed, which is returned; longer each time until
  // the job gets further, or its user has it go on.
  absl::Duration Postpone(const JobRecord& record, absl::Time now);
  bool WasPostponed(const JobRecord& record) const;
  bool IsPostponed(const JobRecord& record, absl::Time now) const;
  absl::Status WaitForRoom(JobChange change, const absl::Status& room, absl::Time now);
  absl::Status Save(JobChange& change);
  void Log(const v1::Job& job, absl::Time now, const std::string& line);

  const Parts parts_;
  const std::function<void()> wake_;
  const std::shared_ptr<Inbox> inbox_;
  std::unique_ptr<Current> current_;  // the job under way
  struct Postponement {
    absl::Time until = absl::InfinitePast();
    absl::Duration delay;      // the last one; zero before the first
    int64_t resume_count = 0;  // of the job's wishes then: one more ends it
  };
  std::map<std::string, Postponement> postponed_;  // by job
  // Of jobs that wait with their results, those that are out: the job, by the publication's number.
  std::map<int64_t, std::string> waiting_publications_;
  bool recovered_ = false;
  int64_t last_number_ = 0;  // of a preparation, a run or a publication
  std::atomic<bool> draining_ = false;
  std::atomic<bool> idle_ = false;
};

}  // namespace megatrain

#endif  // SERVER_JOBS_JOB_CONTROLLER_H_
