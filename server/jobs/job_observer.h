// Who wants to know what the controller does: metrics and watchers.

#ifndef SERVER_JOBS_JOB_OBSERVER_H_
#define SERVER_JOBS_JOB_OBSERVER_H_

#include <string>
#include <vector>

#include "megatrain/engine/v1/engine.pb.h"
#include "megatrain/v1/job.pb.h"
#include "server/jobs/job_record.h"

namespace megatrain {

// Called from the controller's thread; returns soon.
class JobObserver {
 public:
  virtual ~JobObserver() = default;

  // The job and its events, as they are now in the store, changed.
  virtual void OnChange(const v1::Job& job) = 0;

  // The job's log grew.
  virtual void OnLog(const v1::Job& job) = 0;

  // A step ended.
  virtual void OnStep(const v1::Job& job, const v1::StepRecord& step) = 0;

  // A checkpoint was committed.
  virtual void OnCheckpoint(const v1::Job& job, const engine::v1::CheckpointSaved& saved) = 0;

  // A checkpoint could not be written.
  virtual void OnCheckpointFailure(const v1::Job& job, const v1::CheckpointFailure& failure) = 0;

  // An evaluation ended.
  virtual void OnEvaluation(const v1::Job& job, const v1::EvaluationRecord& evaluation) = 0;

  // The running job was put back with its state saved, since the server stops.
  virtual void OnDrained(const v1::Job& job) = 0;

  // The running job was put back with its state saved, since one of higher priority waits.
  virtual void OnPreempted(const v1::Job& job) = 0;

  // After an unclean stop of the server the job waits again, or failed.
  virtual void OnRecovered(const v1::Job& job) = 0;

  // The job became final.
  virtual void OnEnd(const v1::Job& job) = 0;

  // New figures of the engine's streams.
  virtual void OnFigures(const engine::v1::StreamFigures& figures) = 0;

  // Every job that is not final, once a tick.
  virtual void OnActiveJobs(const std::vector<JobRecord>& jobs) = 0;
};

}  // namespace megatrain

#endif  // SERVER_JOBS_JOB_OBSERVER_H_
