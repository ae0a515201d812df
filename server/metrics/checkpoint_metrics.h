// Metrics of checkpoints, of what they save a job from, and of their disk.

#ifndef SERVER_METRICS_CHECKPOINT_METRICS_H_
#define SERVER_METRICS_CHECKPOINT_METRICS_H_

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "megatrain/engine/v1/engine.pb.h"
#include "megatrain/v1/checkpoint.pb.h"
#include "megatrain/v1/job.pb.h"

namespace megatrain {

// Every combination of labels is there with 0 from the start. Thread-safe.
class CheckpointMetrics {
 public:
  // The registry outlives it.
  explicit CheckpointMetrics(prometheus::Registry& registry);

  void CountCommitted(const engine::v1::CheckpointSaved& saved);
  void CountFailed(v1::CheckpointTrigger trigger);
  void CountDrained() { drained_->Increment(); }
  void CountPreempted() { preempted_->Increment(); }
  void CountRecovered(bool resumed) { (resumed ? resumed_ : not_resumed_)->Increment(); }
  void CountRetention(int64_t freed_bytes);
  void SetHolding(bool holding) { holding_->Set(holding ? 1 : 0); }
  void SetAvailableBytes(int64_t size_bytes);

 private:
  std::map<std::pair<std::string, int>, prometheus::Counter*> checkpoints_;  // outcome, trigger
  prometheus::Histogram* duration_;
  prometheus::Counter* stall_;
  prometheus::Counter* written_bytes_;
  prometheus::Counter* retention_bytes_;
  prometheus::Counter* drained_;
  prometheus::Counter* preempted_;
  prometheus::Counter* resumed_;
  prometheus::Counter* not_resumed_;
  prometheus::Gauge* holding_;
  prometheus::Gauge* available_bytes_;
};

}  // namespace megatrain

#endif  // SERVER_METRICS_CHECKPOINT_METRICS_H_
