// Who listens to the controller in the daemon.

#ifndef SERVER_MAIN_OBSERVERS_H_
#define SERVER_MAIN_OBSERVERS_H_

#include <vector>

#include "server/api/follow_stream.h"
#include "server/jobs/job_observer.h"
#include "server/metrics/server_metrics.h"

namespace megatrain {

// Tells open streams and metrics. Both outlive it.
class DaemonObserver final : public JobObserver {
 public:
  DaemonObserver(FollowHub& hub, ServerMetrics& metrics) : hub_(hub), metrics_(metrics) {}

  void OnChange(const v1::Job& job) override {
    metrics_.OnChange(job);
    hub_.Notify(job.name());
  }
  void OnLog(const v1::Job& job) override { hub_.Notify(job.name()); }
  void OnStep(const v1::Job& job, const v1::StepRecord& step) override {
    metrics_.OnStep(job, step);
  }
  void OnCheckpoint(const v1::Job& job, const engine::v1::CheckpointSaved& saved) override {
    metrics_.OnCheckpoint(job, saved);
  }
  void OnCheckpointFailure(const v1::Job& job, const v1::CheckpointFailure& failure) override {
    metrics_.OnCheckpointFailure(job, failure);
  }
  void OnEvaluation(const v1::Job& job, const v1::EvaluationRecord& evaluation) override {
    metrics_.OnEvaluation(job, evaluation);
  }
  void OnDrained(const v1::Job& job) override { metrics_.OnDrained(job); }
  void OnPreempted(const v1::Job& job) override { metrics_.OnPreempted(job); }
  void OnRecovered(const v1::Job& job) override { metrics_.OnRecovered(job); }
  void OnEnd(const v1::Job& job) override { metrics_.OnEnd(job); }
  void OnFigures(const engine::v1::StreamFigures& figures) override { metrics_.OnFigures(figures); }
  void OnActiveJobs(const std::vector<JobRecord>& jobs) override { metrics_.OnActiveJobs(jobs); }

 private:
  FollowHub& hub_;
  ServerMetrics& metrics_;
};

}  // namespace megatrain

#endif  // SERVER_MAIN_OBSERVERS_H_
