#include "server/jobs/job_change.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/status_macros.h"
#include "server/jobs/job_wish.h"
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
  if (record_.job.phase() == kHoldingPhase && phase != kHoldingPhase) {
    record_.job.clear_reason();
  }
  record_.job.set_phase(phase);
  AddStateEvent(now);
}

void JobChange::SetStarted(const engine::v1::Started& started, absl::Time now) {
  record_.job.set_planned_step_count(started.planned_step_count());
  const v1::Plan admitted = record_.job.plan();
  *record_.job.mutable_plan() = started.plan();
  // The daemon's own: an engine plans no checkpoints.
  record_.job.mutable_plan()->set_checkpoint_bytes(admitted.checkpoint_bytes());
  record_.job.mutable_plan()->set_checkpoint_seconds(admitted.checkpoint_seconds());
  record_.job.mutable_plan()->set_checkpoint_stall_seconds(admitted.checkpoint_stall_seconds());
  *record_.job.mutable_update_time() = TimestampOf(now);
  changed_ = true;
}

void JobChange::SetSavesAnswered(int64_t count) {
  record_.saves_answered = count;
  changed_ = true;
}

void JobChange::SetStart(const v1::Checkpoint* checkpoint) {
  record_.job.set_resumed_from(checkpoint == nullptr ? "" : checkpoint->name());
  changed_ = true;
}

void JobChange::AddCheckpoint(const v1::Checkpoint& checkpoint, const std::string& best,
                              absl::Time now) {
  v1::Job& job = record_.job;
  record_.crash_count = 0;
  *job.mutable_update_time() = TimestampOf(now);
  job.set_last_checkpoint(checkpoint.name());
  job.set_best_checkpoint(best);
  if (job.phase() == kHoldingPhase) {
    job.clear_phase();
    job.clear_reason();
    AddStateEvent(now);
  }
  *AddEvent(now).mutable_checkpoint() = checkpoint;
}

void JobChange::AddCheckpointFailure(const v1::CheckpointFailure& failure, absl::Time now) {
  *AddEvent(now).mutable_checkpoint_failure() = failure;
  record_.job.set_phase(kHoldingPhase);
  *record_.job.mutable_reason() = failure.reason();
  AddStateEvent(now);
}

void JobChange::AddEvaluation(const v1::EvaluationRecord& evaluation) {
  v1::Job& job = record_.job;
  *job.mutable_last_evaluation() = evaluation;
  if (!job.has_best_evaluation() || std::isnan(job.best_evaluation().loss()) ||
      evaluation.loss() < job.best_evaluation().loss()) {
    *job.mutable_best_evaluation() = evaluation;
  }
  *AddEvent(TimeOf(evaluation.end_time())).mutable_evaluation() = evaluation;
}

void JobChange::AddRemembered(const v1::JobEvent& event) {
  if (event.has_evaluation()) {
    AddEvaluation(event.evaluation());
    return;
  }
  *record_.job.mutable_last_step() = event.step();
  *AddEvent(TimeOf(event.event_time())).mutable_step() = event.step();
}

void JobChange::Pause(absl::Time now) {
  v1::Job& job = record_.job;
  job.set_state(v1::JOB_STATE_PAUSED);
  job.clear_phase();
  job.clear_reason();
  job.clear_estimated_end_time();
  AddStateEvent(now);
}

void JobChange::Resume(absl::Time now) {
  record_.job.set_state(v1::JOB_STATE_QUEUED);
  record_.job.set_held(false);
  AddStateEvent(now);
}

void JobChange::SetHeld(bool held, absl::Time now) {
  record_.job.set_held(held);
  AddStateEvent(now);
}

void JobChange::SetReason(const v1::JobReason& reason, absl::Time now) {
  *record_.job.mutable_reason() = reason;
  AddStateEvent(now);
}

void JobChange::AddStep(const v1::StepRecord& step) {
  v1::Job& job = record_.job;
  const absl::Time ended = TimeOf(step.end_time());
  if (steps_before_ < 0) {
    first_step_began_ = ended - absl::Seconds(step.step_seconds());
    steps_before_ = step.step() - 1;
  }
  *job.mutable_last_step() = step;
  *job.mutable_update_time() = step.end_time();
  const int64_t left = std::max<int64_t>(job.planned_step_count() - step.step(), 0);
  if (job.planned_step_count() > 0 && step.step() > steps_before_) {
    const absl::Duration mean = (ended - first_step_began_) / (step.step() - steps_before_);
    *job.mutable_estimated_end_time() = TimestampOf(ended + mean * left);
  }
  *AddEvent(ended).mutable_step() = step;
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
  record_.crash_count += counts ? 1 : 0;
  job.clear_phase();
  job.clear_last_step();
  job.clear_planned_step_count();
  job.clear_peak_host_bytes();
  job.clear_estimated_end_time();
  AddStateEvent(now);
}

void JobChange::WaitWithResult(const v1::JobReason& reason, absl::Time now) {
  v1::Job& job = record_.job;
  job.set_state(v1::JOB_STATE_QUEUED);
  job.set_phase(kPublishingPhase);
  *job.mutable_reason() = reason;
  job.clear_estimated_end_time();
  AddStateEvent(now);
}

bool JobChange::CanRetry() const {
  return record_.crash_count + 1 < record_.job.spec().retry().max_attempts();
}

absl::Status JobChange::Save(JobStore& store) {
  MT_RETURN_IF_ERROR(store.Update(record_, events_));
  events_.clear();
  changed_ = false;
  return absl::OkStatus();
}

v1::JobEvent& JobChange::AddEvent(absl::Time now) {
  changed_ = true;
  v1::JobEvent& event = events_.emplace_back();
  *event.mutable_event_time() = TimestampOf(now);
  return event;
}

void JobChange::AddStateEvent(absl::Time now) {
  v1::Job& job = record_.job;
  *job.mutable_update_time() = TimestampOf(now);
  job.clear_queue_position();  // of the acceptance; it is counted anew for each answer
  v1::StateChange& change = *AddEvent(now).mutable_state_change();
  change.set_state(job.state());
  change.set_phase(job.phase());
  change.set_attempt(job.attempt());
  if (job.has_reason()) {
    *change.mutable_reason() = job.reason();
  }
}

v1::JobReason MakeReason(const std::string& code, const std::string& message) {
  v1::JobReason reason;
  reason.set_code(code);
  reason.set_message(message);
  return reason;
}

}  // namespace megatrain
