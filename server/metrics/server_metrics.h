// What Prometheus reads of the daemon: docs/METRICS.md lists the names.

#ifndef SERVER_METRICS_SERVER_METRICS_H_
#define SERVER_METRICS_SERVER_METRICS_H_

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/jobs/job_observer.h"
#include "server/metrics/checkpoint_metrics.h"

namespace megatrain {

// Every combination of labels that is known is there with 0 from the start. Thread-safe; as a
// JobObserver from the controller's thread only.
class ServerMetrics final : public JobObserver {
 public:
  enum class ServerState { kStarting, kReady, kDraining };

  ServerMetrics(const std::string& version, const std::string& grpc_version);

  std::shared_ptr<prometheus::Registry> registry() const { return registry_; }

  void SetServerState(ServerState state);
  void CountSubmittedJob();
  void SetWatchStreams(int count);
  void SetEngine(bool ready, int64_t restart_count);

  void CountRetention(int64_t freed_bytes) { checkpoints_.CountRetention(freed_bytes); }
  void SetAvailableBytes(int64_t size_bytes) { checkpoints_.SetAvailableBytes(size_bytes); }

  void OnChange(const v1::Job& job) override;
  void OnLog(const v1::Job&) override {}
  void OnStep(const v1::Job& job, const v1::StepRecord& step) override;
  void OnCheckpoint(const v1::Job& job, const engine::v1::CheckpointSaved& saved) override;
  void OnCheckpointFailure(const v1::Job& job, const v1::CheckpointFailure& failure) override;
  void OnEvaluation(const v1::Job& job, const v1::EvaluationRecord& evaluation) override;
  void OnDrained(const v1::Job& job) override;
  void OnPreempted(const v1::Job& job) override;
  void OnRecovered(const v1::Job& job) override;
  void OnEnd(const v1::Job& job) override;
  void OnFigures(const engine::v1::StreamFigures& figures) override;
  void OnActiveJobs(const std::vector<JobRecord>& jobs) override;

 private:
  // A counter that follows a cumulative figure of a process that can start anew from 0.
  struct FollowedCounter {
    prometheus::Counter* counter = nullptr;
    double last = 0;

    void Follow(double figure);
  };
  struct Stream {
    FollowedCounter busy;
    FollowedCounter operations;
    std::map<std::string, FollowedCounter> waits;  // by reason
  };

  void AddStreams();
  void AddJobs();
  prometheus::Gauge& JobGauge(prometheus::Family<prometheus::Gauge>& family, const v1::Job& job,
                              const std::map<std::string, std::string>& labels = {});
  void RemoveJobSeries();

  const std::shared_ptr<prometheus::Registry> registry_;
  CheckpointMetrics checkpoints_;
  std::map<ServerState, prometheus::Gauge*> server_state_;
  std::map<std::string, Stream> streams_;  // by name
  std::map<int, prometheus::Gauge*> jobs_by_state_;
  std::map<int, prometheus::Counter*> jobs_by_outcome_;
  prometheus::Counter* submitted_ = nullptr;
  prometheus::Counter* steps_ = nullptr;
  prometheus::Counter* tokens_ = nullptr;
  prometheus::Counter* skipped_steps_ = nullptr;
  prometheus::Histogram* step_duration_ = nullptr;
  prometheus::Histogram* queue_duration_ = nullptr;
  prometheus::Gauge* watch_streams_ = nullptr;
  prometheus::Gauge* engine_ready_ = nullptr;
  FollowedCounter engine_restarts_;

  // Series of the running job, removed when it ends.
  struct JobSeries {
    prometheus::Family<prometheus::Gauge>* family;
    prometheus::Gauge* gauge;
  };
  prometheus::Family<prometheus::Gauge>* job_step_ = nullptr;
  prometheus::Family<prometheus::Gauge>* job_planned_steps_ = nullptr;
  prometheus::Family<prometheus::Gauge>* job_loss_ = nullptr;
  prometheus::Family<prometheus::Gauge>* job_gradient_norm_ = nullptr;
  prometheus::Family<prometheus::Gauge>* job_learning_rate_ = nullptr;
  prometheus::Family<prometheus::Gauge>* job_last_step_time_ = nullptr;
  prometheus::Family<prometheus::Gauge>* job_last_checkpoint_time_ = nullptr;
  prometheus::Family<prometheus::Gauge>* oldest_job_ = nullptr;
  prometheus::Gauge* oldest_job_gauge_ = nullptr;  // absent when nobody waits
  std::map<prometheus::Gauge*, JobSeries> job_series_;
  std::string series_job_;  // whose they are
};

}  // namespace megatrain

#endif  // SERVER_METRICS_SERVER_METRICS_H_
