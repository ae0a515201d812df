#include "server/metrics/checkpoint_metrics.h"

#include <vector>

#include "server/metrics/add_counter.h"

namespace megatrain {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildGauge;
using prometheus::BuildHistogram;
using prometheus::Counter;
using prometheus::Family;

const std::map<int, std::string>& Triggers() {
  static const auto* const triggers = new std::map<int, std::string>{
      {v1::CHECKPOINT_TRIGGER_PERIODIC, "periodic"}, {v1::CHECKPOINT_TRIGGER_MANUAL, "manual"},
      {v1::CHECKPOINT_TRIGGER_PAUSE, "pause"},       {v1::CHECKPOINT_TRIGGER_DRAIN, "drain"},
      {v1::CHECKPOINT_TRIGGER_FINAL, "final"},       {v1::CHECKPOINT_TRIGGER_PREEMPT, "preempt"}};
  return *triggers;
}

constexpr char kCommitted[] = "committed";
constexpr char kFailed[] = "failed";

}  // namespace

CheckpointMetrics::CheckpointMetrics(prometheus::Registry& registry) {
  Family<Counter>& checkpoints = BuildCounter()
                                     .Name("megatrain_checkpoints_total")
                                     .Help("Checkpoints ended")
                                     .Register(registry);
  for (const auto& [trigger, name] : Triggers()) {
    for (const char* outcome : {kCommitted, kFailed}) {
      checkpoints_[{outcome, trigger}] =
          &checkpoints.Add({{"outcome", outcome}, {"trigger", name}});
    }
  }
  duration_ =
      &BuildHistogram()
           .Name("megatrain_checkpoint_duration_seconds")
           .Help("From the request of a checkpoint to its commit")
           .Register(registry)
           .Add({}, std::vector<double>{5, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200});
  stall_ = AddCounter(registry, "megatrain_checkpoint_stall_seconds_total",
                      "Training time lost to checkpoints");
  written_bytes_ = AddCounter(registry, "megatrain_checkpoint_written_bytes_total",
                              "Bytes of committed checkpoints");
  retention_bytes_ = AddCounter(registry, "megatrain_retention_deleted_bytes_total",
                                "Freed by retention", {{"area", "checkpoints"}});
  Family<Counter>& preemptions = BuildCounter()
                                     .Name("megatrain_preemptions_total")
                                     .Help("Running jobs that were put back by the server")
                                     .Register(registry);
  drained_ = &preemptions.Add({{"reason", "drain"}});
  preempted_ = &preemptions.Add({{"reason", "priority"}});
  Family<Counter>& recoveries = BuildCounter()
                                    .Name("megatrain_recoveries_total")
                                    .Help("Jobs found under way after an unclean stop")
                                    .Register(registry);
  resumed_ = &recoveries.Add({{"outcome", "resumed"}});
  not_resumed_ = &recoveries.Add({{"outcome", "failed"}});
  holding_ = &BuildGauge()
                  .Name("megatrain_job_holding")
                  .Help("1 while the running job waits, since its state could not be saved")
                  .Register(registry)
                  .Add({});
  available_bytes_ = &BuildGauge()
                          .Name("megatrain_storage_available_bytes")
                          .Help("Left of the disk")
                          .Register(registry)
                          .Add({{"area", "checkpoints"}});
}

void CheckpointMetrics::CountCommitted(const engine::v1::CheckpointSaved& saved) {
  const auto counter = checkpoints_.find({kCommitted, saved.trigger()});
  if (counter != checkpoints_.end()) {
    counter->second->Increment();
  }
  duration_->Observe(saved.save_seconds());
  stall_->Increment(saved.stall_seconds());
  written_bytes_->Increment(static_cast<double>(saved.size_bytes()));
}

void CheckpointMetrics::CountFailed(v1::CheckpointTrigger trigger) {
  const auto counter = checkpoints_.find({kFailed, trigger});
  if (counter != checkpoints_.end()) {
    counter->second->Increment();
  }
}

void CheckpointMetrics::CountRetention(int64_t freed_bytes) {
  retention_bytes_->Increment(static_cast<double>(freed_bytes));
}

void CheckpointMetrics::SetAvailableBytes(int64_t size_bytes) {
  available_bytes_->Set(static_cast<double>(size_bytes));
}

}  // namespace megatrain
