#include "server/metrics/server_metrics.h"

#include <cmath>

#include "absl/time/time.h"
#include "server/jobs/job_wish.h"
#include "server/metrics/add_counter.h"
#include "server/resources/timestamp.h"

namespace megatrain {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildGauge;
using prometheus::BuildHistogram;
using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Registry;

// The one device of the engine.
constexpr char kGpu[] = "0";

const char* const kStreams[] = {"compute",       "h2d",       "d2h",       "optimizer",
                                "device_update", "state_h2d", "state_d2h", "state_update"};
const char* const kReasons[] = {"weights_ready", "slot_free",   "gradient_ready", "slab_free",
                                "unit_updated",  "state_ready", "activations",    "stash_free",
                                "norm",          "no_work"};

const std::map<int, std::string>& ActiveStates() {
  static const auto* const states = new std::map<int, std::string>{
      {v1::JOB_STATE_QUEUED, "queued"},   {v1::JOB_STATE_PREPARING, "preparing"},
      {v1::JOB_STATE_RUNNING, "running"}, {v1::JOB_STATE_PAUSING, "pausing"},
      {v1::JOB_STATE_PAUSED, "paused"},   {v1::JOB_STATE_CANCELLING, "cancelling"}};
  return *states;
}

Family<Gauge>& AddJobFamily(Registry& registry, const std::string& name, const std::string& help) {
  return BuildGauge().Name(name).Help(help).Register(registry);
}

}  // namespace

void ServerMetrics::FollowedCounter::Follow(double figure) {
  // Less than before: another process counts from 0.
  const double more = figure >= last ? figure - last : figure;
  last = figure;
  counter->Increment(more);
}

ServerMetrics::ServerMetrics(const std::string& version, const std::string& grpc_version)
    : registry_(std::make_shared<Registry>(Registry::InsertBehavior::Throw)),
      checkpoints_(*registry_) {
  BuildGauge()
      .Name("megatrain_build_info")
      .Help("The running build; always 1")
      .Register(*registry_)
      .Add({{"version", version}, {"grpc", grpc_version}})
      .Set(1);
  Family<Gauge>& state = BuildGauge()
                             .Name("megatrain_server_state")
                             .Help("1 for what the server does, 0 for the others")
                             .Register(*registry_);
  server_state_ = {{ServerState::kStarting, &state.Add({{"state", "starting"}})},
                   {ServerState::kReady, &state.Add({{"state", "ready"}})},
                   {ServerState::kDraining, &state.Add({{"state", "draining"}})}};
  SetServerState(ServerState::kStarting);
  watch_streams_ = &BuildGauge()
                        .Name("megatrain_watch_streams")
                        .Help("Open follow streams")
                        .Register(*registry_)
                        .Add({});
  engine_ready_ = &BuildGauge()
                       .Name("megatrain_engine_ready")
                       .Help("1 when the engine process answers")
                       .Register(*registry_)
                       .Add({});
  engine_restarts_.counter = AddCounter(*registry_, "megatrain_engine_restarts_total",
                                        "Deaths of the engine process that nobody asked for");
  AddStreams();
  AddJobs();
}

void ServerMetrics::AddStreams() {
  Family<Counter>& busy = BuildCounter()
                              .Name("megatrain_stream_busy_seconds_total")
                              .Help("Seconds in which the stream had work running")
                              .Register(*registry_);
  Family<Counter>& wait = BuildCounter()
                              .Name("megatrain_stream_wait_seconds_total")
                              .Help("Seconds in which the stream had none, by what it waited for")
                              .Register(*registry_);
  Family<Counter>& operations = BuildCounter()
                                    .Name("megatrain_stream_operations_total")
                                    .Help("Operations completed")
                                    .Register(*registry_);
  for (const char* name : kStreams) {
    Stream& stream = streams_[name];
    stream.busy.counter = &busy.Add({{"gpu", kGpu}, {"stream", name}});
    stream.operations.counter = &operations.Add({{"gpu", kGpu}, {"stream", name}});
    for (const char* reason : kReasons) {
      stream.waits[reason].counter =
          &wait.Add({{"gpu", kGpu}, {"stream", name}, {"reason", reason}});
    }
  }
}

void ServerMetrics::AddJobs() {
  Registry& registry = *registry_;
  Family<Gauge>& jobs = BuildGauge()
                            .Name("megatrain_jobs")
                            .Help("Jobs that are not finished, by state")
                            .Register(registry);
  for (const auto& [state, name] : ActiveStates()) {
    jobs_by_state_[state] = &jobs.Add({{"state", name}});
  }
  Family<Counter>& finished = BuildCounter()
                                  .Name("megatrain_jobs_finished_total")
                                  .Help("Jobs that reached a final state")
                                  .Register(registry);
  jobs_by_outcome_ = {{v1::JOB_STATE_SUCCEEDED, &finished.Add({{"outcome", "succeeded"}})},
                      {v1::JOB_STATE_FAILED, &finished.Add({{"outcome", "failed"}})},
                      {v1::JOB_STATE_CANCELLED, &finished.Add({{"outcome", "cancelled"}})}};
  submitted_ = AddCounter(registry, "megatrain_jobs_submitted_total", "Jobs accepted");
  steps_ = AddCounter(registry, "megatrain_steps_total", "Optimizer steps done");
  tokens_ =
      AddCounter(registry, "megatrain_tokens_total", "Tokens processed", {{"split", "train"}});
  skipped_steps_ =
      AddCounter(registry, "megatrain_nonfinite_steps_total",
                 "Steps whose loss or gradient norm was not finite", {{"action", "skipped"}});
  step_duration_ =
      &BuildHistogram()
           .Name("megatrain_step_duration_seconds")
           .Help("Wall time of an optimizer step")
           .Register(registry)
           .Add({}, std::vector<double>{0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, 120, 240, 480, 900});
  queue_duration_ = &BuildHistogram()
                         .Name("megatrain_job_queue_duration_seconds")
                         .Help("From acceptance to first start")
                         .Register(registry)
                         .Add({}, std::vector<double>{1, 10, 60, 300, 900, 1800, 3600, 7200, 14400,
                                                      43200, 86400, 259200});
  job_step_ = &AddJobFamily(registry, "megatrain_job_step", "Steps done by the running job");
  job_planned_steps_ =
      &AddJobFamily(registry, "megatrain_job_planned_steps", "Steps that the running job takes");
  job_loss_ = &AddJobFamily(registry, "megatrain_job_loss", "Last loss of the running job");
  job_gradient_norm_ = &AddJobFamily(registry, "megatrain_job_gradient_norm",
                                     "Last gradient norm of the running job before clipping");
  job_learning_rate_ = &AddJobFamily(registry, "megatrain_job_learning_rate",
                                     "Learning rate of the running job's last step");
  job_last_step_time_ = &AddJobFamily(registry, "megatrain_job_last_step_timestamp_seconds",
                                      "When the running job's last step ended");
  job_last_checkpoint_time_ =
      &AddJobFamily(registry, "megatrain_job_last_checkpoint_timestamp_seconds",
                    "When the running job's last checkpoint was committed; before it, its start");
  oldest_job_ = &AddJobFamily(registry, "megatrain_queue_oldest_job_timestamp_seconds",
                              "Acceptance of the oldest queued job; absent when there is none");
}

void ServerMetrics::SetServerState(ServerState state) {
  for (const auto& [known, gauge] : server_state_) {
    gauge->Set(known == state ? 1 : 0);
  }
}

void ServerMetrics::CountSubmittedJob() { submitted_->Increment(); }

void ServerMetrics::SetWatchStreams(int count) { watch_streams_->Set(count); }

void ServerMetrics::SetEngine(bool ready, int64_t restart_count) {
  engine_ready_->Set(ready ? 1 : 0);
  engine_restarts_.Follow(static_cast<double>(restart_count));
}

void ServerMetrics::OnChange(const v1::Job& job) {
  if (job.state() == v1::JOB_STATE_PREPARING && job.attempt() == 1 && job.phase().empty()) {
    queue_duration_->Observe(
        absl::ToDoubleSeconds(TimeOf(job.start_time()) - TimeOf(job.create_time())));
  }
  if (job.state() == v1::JOB_STATE_RUNNING && job.planned_step_count() > 0) {
    JobGauge(*job_planned_steps_, job).Set(static_cast<double>(job.planned_step_count()));
  }
  if (job.name() == series_job_ &&
      (job.state() == v1::JOB_STATE_QUEUED || job.state() == v1::JOB_STATE_PAUSED)) {
    RemoveJobSeries();
  }
}

void ServerMetrics::OnCheckpoint(const v1::Job& job, const engine::v1::CheckpointSaved& saved) {
  checkpoints_.CountCommitted(saved);
  JobGauge(*job_last_checkpoint_time_, job)
      .Set(absl::ToDoubleSeconds(TimeOf(job.update_time()) - absl::UnixEpoch()));
}

void ServerMetrics::OnCheckpointFailure(const v1::Job&, const v1::CheckpointFailure& failure) {
  checkpoints_.CountFailed(failure.trigger());
}

void ServerMetrics::OnEvaluation(const v1::Job& job, const v1::EvaluationRecord& evaluation) {
  if (std::isfinite(evaluation.loss())) {
    JobGauge(*job_loss_, job, {{"split", "validation"}}).Set(evaluation.loss());
  }
}

void ServerMetrics::OnDrained(const v1::Job&) { checkpoints_.CountDrained(); }

void ServerMetrics::OnPreempted(const v1::Job&) { checkpoints_.CountPreempted(); }

void ServerMetrics::OnRecovered(const v1::Job& job) {
  checkpoints_.CountRecovered(job.state() == v1::JOB_STATE_QUEUED);
}

void ServerMetrics::OnStep(const v1::Job& job, const v1::StepRecord& step) {
  steps_->Increment();
  tokens_->Increment(static_cast<double>(step.token_count()));
  step_duration_->Observe(step.step_seconds());
  if (step.skipped()) {
    skipped_steps_->Increment();
  }
  if (job.last_checkpoint().empty()) {
    JobGauge(*job_last_checkpoint_time_, job)
        .Set(absl::ToDoubleSeconds(TimeOf(job.start_time()) - absl::UnixEpoch()));
  }
  JobGauge(*job_step_, job).Set(static_cast<double>(step.step()));
  JobGauge(*job_learning_rate_, job).Set(step.learning_rate());
  JobGauge(*job_last_step_time_, job)
      .Set(absl::ToDoubleSeconds(TimeOf(step.end_time()) - absl::UnixEpoch()));
  // NaN is never exported: the last finite value stays.
  if (std::isfinite(step.loss())) {
    JobGauge(*job_loss_, job, {{"split", "train"}}).Set(step.loss());
  }
  if (std::isfinite(step.gradient_norm())) {
    JobGauge(*job_gradient_norm_, job).Set(step.gradient_norm());
  }
}

void ServerMetrics::OnEnd(const v1::Job& job) {
  jobs_by_outcome_.at(job.state())->Increment();
  if (job.name() == series_job_) {
    RemoveJobSeries();
  }
}

void ServerMetrics::OnFigures(const engine::v1::StreamFigures& figures) {
  for (const engine::v1::StreamFigure& figure : figures.streams()) {
    const auto stream = streams_.find(figure.stream());
    if (stream == streams_.end()) {
      continue;
    }
    stream->second.busy.Follow(figure.busy_seconds());
    stream->second.operations.Follow(static_cast<double>(figure.operation_count()));
    for (const auto& [reason, seconds] : figure.wait_seconds()) {
      if (const auto wait = stream->second.waits.find(reason); wait != stream->second.waits.end()) {
        wait->second.Follow(seconds);
      }
    }
  }
}

void ServerMetrics::OnActiveJobs(const std::vector<JobRecord>& jobs) {
  std::map<int, int> counts;
  const JobRecord* oldest = nullptr;
  bool holding = false;
  for (const JobRecord& record : jobs) {
    ++counts[record.job.state()];
    holding = holding || record.job.phase() == kHoldingPhase;
    if (record.job.state() == v1::JOB_STATE_QUEUED && oldest == nullptr) {
      oldest = &record;
    }
  }
  checkpoints_.SetHolding(holding);
  for (const auto& [state, gauge] : jobs_by_state_) {
    gauge->Set(counts[state]);
  }
  if (oldest == nullptr && oldest_job_gauge_ != nullptr) {
    oldest_job_->Remove(oldest_job_gauge_);
    oldest_job_gauge_ = nullptr;
  } else if (oldest != nullptr) {
    oldest_job_gauge_ = &oldest_job_->Add({});
    oldest_job_gauge_->Set(
        absl::ToDoubleSeconds(TimeOf(oldest->job.create_time()) - absl::UnixEpoch()));
  }
}

Gauge& ServerMetrics::JobGauge(Family<Gauge>& family, const v1::Job& job,
                               const std::map<std::string, std::string>& labels) {
  if (job.name() != series_job_) {
    RemoveJobSeries();
    series_job_ = job.name();
  }
  std::map<std::string, std::string> all = labels;
  all["job_id"] = JobIdOf(job);
  Gauge& gauge = family.Add(all);
  job_series_[&gauge] = {&family, &gauge};
  return gauge;
}

void ServerMetrics::RemoveJobSeries() {
  for (const auto& [gauge, series] : job_series_) {
    series.family->Remove(gauge);
  }
  job_series_.clear();
  series_job_.clear();
}

}  // namespace megatrain
