// News of the current job: wishes, answers, events of its run.

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "server/errors/errors.h"
#include "server/jobs/job_controller.h"
#include "server/jobs/job_controller_current.h"
#include "server/jobs/job_wish.h"
#include "server/jobs/scheduling_policy.h"
#include "server/resources/timestamp.h"

namespace megatrain {
namespace {

// The engine's reason for a checkpoint that is not what its manifest says.
constexpr char kCheckpointCorrupt[] = "CHECKPOINT_CORRUPT";
constexpr char kExportingPhase[] = "exporting";
constexpr char kSavingPhase[] = "saving";
// Another attempt would most likely stall too, and after as long.
constexpr char kEngineStalled[] = "ENGINE_STALLED";
// Memory or disk that others hold by now, as long as the job has not begun.
constexpr char kResourceExhausted[] = "RESOURCE_EXHAUSTED";
// The engine's reason for a save that waits for the disk, and goes on by itself.
constexpr char kDiskStalled[] = "DISK_STALLED";
constexpr absl::Duration kCommitRetryDelay = absl::Seconds(10);
// A run that ended by a stop.
constexpr char kEngineStopped[] = "ENGINE_STOPPED";

v1::JobReason ServerStoppedReason() {
  return MakeReason("SERVER_STOPPED", "the server was stopped");
}

v1::JobReason PreemptedReason(const std::string& by) {
  return MakeReason("PREEMPTED", absl::StrCat(by, " has a higher priority"));
}

// And what a user of the job `id` can do about it.
v1::CheckpointFailure WithAdvice(v1::CheckpointFailure failure, const std::string& id) {
  if (failure.reason().code() == kDiskStalled) {
    return failure;
  }
  std::string& message = *failure.mutable_reason()->mutable_message();
  absl::StrAppend(&message, "; once that is seen to, `megatrain resume ", id, "` tries again");
  if (failure.trigger() == v1::CHECKPOINT_TRIGGER_FINAL) {
    absl::StrAppend(&message, "; if that cannot be, `megatrain pause ", id,
                    "` keeps its state as a checkpoint, and `megatrain model export --checkpoint` "
                    "writes that elsewhere");
  }
  return failure;
}

v1::JobReason HeldReason() {
  return MakeReason("PAUSED_BY_USER", "the job was paused before its first step");
}

}  // namespace

void JobController::TakeWishes(const std::vector<JobRecord>& jobs, absl::Time now) {
  for (const JobRecord& record : jobs) {
    if (current_ == nullptr || record.job.name() != current_->change.job().name()) {
      continue;
    }
    current_->change.SetWishes(record.wishes);
    if (record.wishes.cancel) {
      TakeCancel(now);
    } else if (record.wishes.pause) {
      TakePause(now);
    }
    TakeSave(now);
  }
}

void JobController::TakeCancel(absl::Time now) {
  using Stage = Current::Stage;
  if (current_->stop_reason == Current::StopReason::kCancel) {
    return;
  }
  if (EndPreparation()) {
    EndCurrent(v1::JOB_STATE_CANCELLED, CancelledReason(), now);
    return;
  }
  switch (current_->stage) {
    case Stage::kRunning:
    case Stage::kMustStop:
      current_->stage = Stage::kMustStop;
      [[fallthrough]];
    case Stage::kStopping:
      current_->stop_reason = Current::StopReason::kCancel;
      current_->change.SetState(v1::JOB_STATE_CANCELLING, now);
      return;
    default:
      return;  // too late, or for the next tick
  }
}

void JobController::TakePause(absl::Time now) {
  if (EndPreparation()) {
    PutBackCurrent(HeldReason(), /*counts=*/false, now);
    return;
  }
  StopWithState(v1::CHECKPOINT_TRIGGER_PAUSE, now);
}

void JobController::TakeDrain(absl::Time now) {
  if (!draining_ || current_ == nullptr) {
    return;
  }
  if (EndPreparation()) {
    PutBackCurrent(ServerStoppedReason(), /*counts=*/false, now);
    return;
  }
  const v1::Job& job = current_->change.job();
  const bool holds = current_->stage == Current::Stage::kRunning && job.phase() == kHoldingPhase;
  const bool hangs = holds && job.reason().code() == kDiskStalled;
  if (holds && job.state() == v1::JOB_STATE_PAUSING) {
    current_->stop_reason = Current::StopReason::kDrain;
    AskToSave(v1::CHECKPOINT_TRIGGER_DRAIN, /*then_stop=*/true, now);  // there may be room by now
  } else {
    StopWithState(v1::CHECKPOINT_TRIGGER_DRAIN, now);
  }
  if (hangs) {
    current_->stage = Current::Stage::kMustStop;  // what it waits for may never come
  }
}

// A job that cannot start, or a state that cannot be saved, is no reason to stop one.
void JobController::TakePreemption(const std::vector<JobRecord>& jobs, absl::Time now) {
  if (current_ == nullptr || draining_ || current_->stop_reason != Current::StopReason::kNone) {
    return;
  }
  // One that could not start would not only stop this one: it would stop it again and again.
  const int next = NextJob(jobs, [this](const JobRecord& record) { return WasPostponed(record); });
  if (next < 0) {
    return;
  }
  const v1::Job& waiting = jobs[next].job;
  const v1::Job& job = current_->change.job();
  if (waiting.spec().priority() <= job.spec().priority() || job.phase() == kHoldingPhase ||
      !parts_.checkpoints.CheckRoom(waiting).ok()) {
    return;
  }
  current_->preempted_by = waiting.name();
  if (EndPreparation()) {
    PutBackCurrent(PreemptedReason(waiting.name()), /*counts=*/false, now);
    return;
  }
  StopWithState(v1::CHECKPOINT_TRIGGER_PREEMPT, now);
}

bool JobController::EndPreparation() {
  if (current_->stage >= Current::Stage::kRunning) {
    return false;
  }
  parts_.materials.StopPreparing(current_->change.job().name());
  return true;
}

// Before its first step there is no state to save; at its end it is sooner over than stopped.
void JobController::StopWithState(v1::CheckpointTrigger trigger, absl::Time now) {
  if (current_->stage != Current::Stage::kRunning ||
      current_->stop_reason != Current::StopReason::kNone) {
    return;  // it stops anyway, or is too far
  }
  current_->stop_reason = trigger == v1::CHECKPOINT_TRIGGER_PAUSE   ? Current::StopReason::kPause
                          : trigger == v1::CHECKPOINT_TRIGGER_DRAIN ? Current::StopReason::kDrain
                                                                    : Current::StopReason::kPreempt;
  if (current_->change.job().state() != v1::JOB_STATE_RUNNING) {
    current_->stage = Current::Stage::kMustStop;
    return;
  }
  if (current_->change.job().phase().starts_with(kExportingPhase)) {  // and how far it is
    current_->stop_reason = Current::StopReason::kNone;
    return;
  }
  current_->change.SetState(v1::JOB_STATE_PAUSING, now);
  AskToSave(trigger, /*then_stop=*/true, now);
}

void JobController::AskToSave(v1::CheckpointTrigger trigger, bool then_stop, absl::Time now) {
  const v1::Job& job = current_->change.job();
  if (job.phase() == kHoldingPhase && job.reason().code() != kDiskStalled) {
    current_->change.SetPhase(kSavingPhase, now);  // it holds no more, until this fails too
  }
  current_->save = {trigger, then_stop};
}

void JobController::TakeSave(absl::Time now) {
  const JobRecord& record = current_->change.record();
  const bool can_save =
      current_->stage == Current::Stage::kRunning &&
      (record.job.state() == v1::JOB_STATE_RUNNING || record.job.state() == v1::JOB_STATE_PAUSING);
  const int64_t begun = std::max(record.saves_answered, current_->saves_asked);
  if (can_save && record.wishes.save_count > begun) {
    current_->saves_asked = record.wishes.save_count;
    if (!current_->save.has_value()) {
      AskToSave(v1::CHECKPOINT_TRIGGER_MANUAL, /*then_stop=*/false, now);
    }
  }
}

void JobController::TakeAnswers(const std::vector<JobRecord>& jobs, absl::Time now) {
  using Stage = Current::Stage;
  for (Answer& answer : inbox_->TakeAll()) {
    if (const auto waiting = waiting_publications_.extract(answer.number); !waiting.empty()) {
      for (const JobRecord& record : jobs) {
        if (record.job.name() == waiting.mapped()) {
          TakeWaitingPublication(record, answer, now);
        }
      }
    } else if (current_ == nullptr || answer.number != current_->number) {
      continue;  // of a job that was cancelled meanwhile
    } else if (current_->stage == Stage::kPreparing) {
      TakePrepared(answer, now);
    } else if (current_->stage == Stage::kPublishing) {
      SettlePublication(current_->change, answer, now);
      current_->stage = Stage::kEnded;
    }
  }
}

void JobController::TakePrepared(Answer& answer, absl::Time now) {
  current_->prepared = std::move(answer.prepared);
  current_->stage = Current::Stage::kPrepared;
  if (answer.status.ok()) {
    return;
  }
  const std::string code = ReasonOf(answer.status);
  const v1::JobReason reason =
      MakeReason(code.empty() ? "PREPARATION_FAILED" : code, std::string(answer.status.message()));
  if (CanPass(answer.status)) {
    TryLater(reason, now);
  } else {
    EndCurrent(v1::JOB_STATE_FAILED, reason, now);
  }
}

void JobController::TakeRunnerEvents(absl::Time now) {
  for (const RunnerEvent& event : parts_.runner.TakeEvents()) {
    TakeRunnerEvent(event, now);
  }
}

void JobController::TakeRunnerEvent(const RunnerEvent& event, absl::Time now) {
  using Stage = Current::Stage;
  if (current_ == nullptr || event.run != current_->number ||
      (current_->stage != Stage::kRunning && current_->stage != Stage::kMustStop &&
       current_->stage != Stage::kStopping)) {
    return;
  }
  if (const auto* engine_event = std::get_if<engine::v1::RunJobEvent>(&event.kind)) {
    TakeEngineEvent(*engine_event, now);
  } else if (const auto* died = std::get_if<EngineDied>(&event.kind)) {
    TakeRunEnd(died->reason, /*counts_as_crash=*/true, now);
  } else {
    TakeRunEnd(MakeReason(kEngineStopped, "the engine stopped the job unasked"),
               /*counts_as_crash=*/false, now);
  }
}

void JobController::TakeEngineEvent(const engine::v1::RunJobEvent& event, absl::Time now) {
  JobChange& change = current_->change;
  switch (event.kind_case()) {
    case engine::v1::RunJobEvent::kPhase:
      change.SetPhase(event.phase(), now);
      Log(change.job(), now, event.phase());
      break;
    case engine::v1::RunJobEvent::kStep:
      current_->stepped = true;
      postponed_.erase(change.job().name());
      change.AddStep(event.step());
      parts_.observer.OnStep(change.job(), event.step());
      break;
    case engine::v1::RunJobEvent::kLogLine:
      Log(change.job(), now, event.log_line());
      break;
    case engine::v1::RunJobEvent::kStarted:
      change.SetStarted(event.started(), now);
      if (change.job().state() == v1::JOB_STATE_PREPARING) {
        change.SetState(v1::JOB_STATE_RUNNING, now);
      }
      break;
    case engine::v1::RunJobEvent::kStreams:
      change.SetPeakHostBytes(event.streams().peak_host_bytes());
      parts_.observer.OnFigures(event.streams());
      break;
    case engine::v1::RunJobEvent::kCheckpoint:
      current_->uncommitted.push_back(event.checkpoint());
      CommitCheckpoints(now);
      break;
    case engine::v1::RunJobEvent::kCheckpointFailed:
      TakeCheckpointFailure(event.checkpoint_failed(), now);
      break;
    case engine::v1::RunJobEvent::kEvaluation:
      change.AddEvaluation(event.evaluation());
      parts_.observer.OnEvaluation(change.job(), event.evaluation());
      break;
    case engine::v1::RunJobEvent::kPaused:
      change.SetPeakHostBytes(event.paused().peak_host_bytes());
      TakePaused(now);
      break;
    case engine::v1::RunJobEvent::kFinished:
      TakeTrained(event.finished(), now);
      break;
    case engine::v1::RunJobEvent::kFailed:
      TakeFailed(event.failed(), now);
      break;
    case engine::v1::RunJobEvent::KIND_NOT_SET:
      break;
  }
}

void JobController::CommitCheckpoints(absl::Time now) {
  while (current_ != nullptr && current_->stage != Current::Stage::kEnded &&
         !current_->uncommitted.empty() && now >= current_->next_commit) {
    const engine::v1::CheckpointSaved& saved = current_->uncommitted.front();
    if (const absl::Status status = TakeCheckpoint(saved, now); !status.ok()) {
      if (current_->next_commit == absl::InfinitePast()) {
        Log(current_->change.job(), now,
            absl::StrCat("checkpoint ", saved.checkpoint_id(),
                         " is saved, but not recorded yet: ", std::string(status.message())));
      }
      current_->next_commit = now + kCommitRetryDelay;
      return;
    }
    current_->next_commit = absl::InfinitePast();
    current_->uncommitted.pop_front();
  }
}

absl::Status JobController::TakeCheckpoint(const engine::v1::CheckpointSaved& saved,
                                           absl::Time now) {
  JobChange& change = current_->change;
  const absl::StatusOr<v1::Checkpoint> checkpoint =
      parts_.checkpoints.Commit(change.record(), saved.checkpoint_id());
  if (absl::IsNotFound(checkpoint.status()) || absl::IsDataLoss(checkpoint.status())) {
    Log(change.job(), now,
        absl::StrCat("checkpoint ", saved.checkpoint_id(),
                     " is not valid: ", std::string(checkpoint.status().message())));
    return absl::OkStatus();
  }
  MT_RETURN_IF_ERROR(checkpoint.status());
  MT_ASSIGN_OR_RETURN(const std::string best, parts_.checkpoints.Best(change.job()));
  AnswerSaves();
  change.AddCheckpoint(*checkpoint, best, now);
  // Pinned, and nobody has changed this very one: the pin is that of the one whose place it took.
  const bool replaces_pinned = checkpoint->pinned() && TimeOf(checkpoint->update_time()) ==
                                                           TimeOf(checkpoint->create_time());
  Log(change.job(), now,
      absl::StrCat("checkpoint ", saved.checkpoint_id(), " is committed",
                   replaces_pinned ? ", in place of the pinned one of that step" : ""));
  parts_.observer.OnCheckpoint(change.job(), saved);
  return absl::OkStatus();
}

void JobController::AnswerSaves() {
  JobChange& change = current_->change;
  change.SetSavesAnswered(std::max(change.record().saves_answered, current_->saves_asked));
}

void JobController::TakeCheckpointFailure(const v1::CheckpointFailure& failure, absl::Time now) {
  if (failure.reason().code() != kDiskStalled) {
    AnswerSaves();  // else it still goes on
  }
  current_->change.AddCheckpointFailure(WithAdvice(failure, JobIdOf(current_->change.job())), now);
  Log(current_->change.job(), now,
      absl::StrCat("holds, since its state could not be saved: ", failure.reason().message()));
  parts_.observer.OnCheckpointFailure(current_->change.job(), failure);
  if (current_->stop_reason == Current::StopReason::kDrain &&
      current_->stage == Current::Stage::kRunning) {
    current_->stage = Current::Stage::kMustStop;  // nobody is left who could make room
  }
}

void JobController::TakePaused(absl::Time now) {
  switch (current_->stop_reason) {
    case Current::StopReason::kPause:
      parts_.materials.Discard(current_->change.job());  // what a failed export left
      current_->change.Pause(now);
      current_->stage = Current::Stage::kEnded;
      Log(current_->change.job(), now, "paused");
      return;
    case Current::StopReason::kNone:  // somebody stopped the engine
      PutBackCurrent(MakeReason(kEngineStopped, "the engine was stopped"), /*counts=*/false, now);
      return;
    default:
      TakeRunEnd(MakeReason(kEngineStopped, "the engine stopped as asked"),
                 /*counts_as_crash=*/false, now);
  }
}

void JobController::TakeTrained(const engine::v1::Finished& finished, absl::Time now) {
  if (current_->stop_reason == Current::StopReason::kCancel) {
    TakeRunEnd(CancelledReason(), /*counts_as_crash=*/false, now);
    return;
  }
  JobChange& change = current_->change;
  change.SetPeakHostBytes(finished.peak_host_bytes());
  change.SetStoppedEarly(finished.stopped_early());
  if (change.job().state() != v1::JOB_STATE_RUNNING) {
    change.SetState(v1::JOB_STATE_RUNNING, now);
  }
  change.SetPhase(kPublishingPhase, now);
  current_->stage = Current::Stage::kTrained;
}

// From a damaged checkpoint the job goes back into the queue, and then on from the one before.
void JobController::TakeFailed(const v1::JobReason& reason, absl::Time now) {
  const bool corrupt = reason.code() == kCheckpointCorrupt && current_->start.has_value();
  const bool is_system_error = IsSystemError(reason.code());
  const bool may_pass = is_system_error || reason.code() == kResourceExhausted ||
                        reason.code() == kCheckpointUnreadable;
  if (current_->stop_reason == Current::StopReason::kCancel || current_->stepped ||
      (!corrupt && !may_pass)) {
    TakeRunEnd(reason, /*counts_as_crash=*/is_system_error, now);
  } else if (corrupt && parts_.checkpoints.MarkDamaged(*current_->start, reason.message()).ok()) {
    PutBackCurrent(reason, /*counts=*/false, now);
  } else {
    TryLater(reason, now);
  }
}

void JobController::TakeRunEnd(const v1::JobReason& reason, bool counts_as_crash, absl::Time now) {
  if (current_->stop_reason == Current::StopReason::kCancel) {
    EndCurrent(v1::JOB_STATE_CANCELLED, CancelledReason(), now);
  } else if (current_->stop_reason == Current::StopReason::kDrain) {
    parts_.observer.OnDrained(current_->change.job());
    PutBackCurrent(ServerStoppedReason(), /*counts=*/false, now);
  } else if (current_->stop_reason == Current::StopReason::kPreempt &&
             reason.code() == kEngineStopped) {
    parts_.observer.OnPreempted(current_->change.job());
    PutBackCurrent(PreemptedReason(current_->preempted_by), /*counts=*/false, now);
  } else if (current_->stop_reason == Current::StopReason::kPause &&
             reason.code() == kEngineStopped) {
    PutBackCurrent(HeldReason(), /*counts=*/false, now);
  } else if (counts_as_crash && reason.code() != kEngineStalled && current_->change.CanRetry()) {
    PutBackCurrent(reason, /*counts=*/true, now);
  } else {
    EndCurrent(v1::JOB_STATE_FAILED, reason, now);
  }
}

}  // namespace megatrain
