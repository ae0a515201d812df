#include "server/jobs/job_change.h"

#include <algorithm>

#include "runtime/base/status_macros.h"
#include "server/resources/timestamp.h"

namespace megatrain {

void JobChange::SetState(v1::JobState state, absl::Time now) {
  v1::Job& job = record_.job;
  job.set_state(state);
  if (!job.has_start_time() && state == v1::JOB_STATE_PREPARING) {
    *job.mutable_start_time() = TimestampOf(now);
  }
  AddStateEvent(now);
}

void JobChange::SetPhase(const std::string& phase, absl::Time now) {
  record_.job.set_phase(phase);
  AddStateEvent(now);
}

void JobChange::SetStarted(const engine::v1::Started& started, absl::Time now) {
  record_.job.set_planned_step_count(started.planned_step_count());
  *record_.job.mutable_plan() = started.plan();
  *record_.job.mutable_update_time() = TimestampOf(now);
  changed_ = true;
}

void JobChange::AddStep(const v1::StepRecord& step) {
  v1::Job& job = record_.job;
  const absl::Time ended = TimeOf(step.end_time());
  if (!job.has_last_step()) {
    first_step_began_ = ended - absl::Seconds(step.step_seconds());
  }
  *job.mutable_last_step() = step;
  *job.mutable_update_time() = step.end_time();
  const int64_t left = std::max<int64_t>(job.planned_step_count() - step.step(), 0);
  if (job.planned_step_count() > 0 && step.step() > 0) {
    const absl::Duration mean = (ended - first_step_began_) / step.step();
    *job.mutable_estimated_end_time() = TimestampOf(ended + mean * left);
  }
  v1::JobEvent& event = events_.emplace_back();
  *event.mutable_event_time() = step.end_time();
  *event.mutable_step() = step;
  changed_ = true;
}

void JobChange::End(v1::JobState state, const v1::JobReason& reason, absl::Time now) {
  v1::Job& job = record_.job;
  job.set_state(state);
  job.clear_phase();
  job.clear_estimated_end_time();
  *job.mutable_end_time() = TimestampOf(now);
  if (reason.code().empty()) {
    job.clear_reason();
  } else {
    *job.mutable_reason() = reason;
  }
  AddStateEvent(now);
}

void JobChange::PutBack(const v1::JobReason& reason, bool counts, absl::Time now) {
  v1::Job& job = record_.job;
  job.set_state(v1::JOB_STATE_QUEUED);
  *job.mutable_reason() = reason;
  job.set_attempt(job.attempt() + (counts ? 1 : 0));
  job.clear_phase();
  job.clear_last_step();
  job.clear_planned_step_count();
  job.clear_peak_host_bytes();
  job.clear_estimated_end_time();
  AddStateEvent(now);
}

bool JobChange::CanRetry() const {
  return record_.job.attempt() < record_.job.spec().retry().max_attempts();
}

absl::Status JobChange::Save(JobStore& store) {
  MT_RETURN_IF_ERROR(store.Update(record_, events_));
  events_.clear();
  changed_ = false;
  return absl::OkStatus();
}

void JobChange::AddStateEvent(absl::Time now) {
  v1::Job& job = record_.job;
  *job.mutable_update_time() = TimestampOf(now);
  job.clear_queue_position();  // of the acceptance; it is counted anew for each answer
  v1::JobEvent& event = events_.emplace_back();
  *event.mutable_event_time() = job.update_time();
  v1::StateChange& change = *event.mutable_state_change();
  change.set_state(job.state());
  change.set_phase(job.phase());
  change.set_attempt(job.attempt());
  if (job.has_reason()) {
    *change.mutable_reason() = job.reason();
  }
  changed_ = true;
}

v1::JobReason MakeReason(const std::string& code, const std::string& message) {
  v1::JobReason reason;
  reason.set_code(code);
  reason.set_message(message);
  return reason;
}

}  // namespace megatrain
