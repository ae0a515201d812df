#include "server/jobs/job_controller.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "server/errors/errors.h"
#include "server/jobs/figure_gap.h"
#include "server/jobs/job_controller_current.h"
#include "server/jobs/job_wish.h"
#include "server/jobs/scheduling_policy.h"

namespace megatrain {
namespace {

// How long a job waits that could not begin: it doubles from time to time.
constexpr absl::Duration kFirstDelay = absl::Seconds(10);
constexpr absl::Duration kLongestDelay = absl::Minutes(10);
// A look at the disk costs nothing.
constexpr absl::Duration kRoomDelay = absl::Seconds(10);

constexpr char kDiskFailed[] = "DISK_FAILED";

// Why an attempt ended; all other reasons of a job in the queue are what it waits for.
constexpr const char* kEnds[] = {"ENGINE_DIED", "ENGINE_STOPPED", "OUTPUT_NOT_STORED",
                                 "SERVER_DIED", "SERVER_STOPPED"};

bool IsToldAfterItsWait(const JobRecord& record) {
  const std::string& code = record.job.reason().code();
  return std::find(std::begin(kEnds), std::end(kEnds), code) != std::end(kEnds) ||
         (record.crash_count > 0 && IsSystemError(code));
}

}  // namespace

JobController::JobController(const Parts& parts, std::function<void()> wake)
    : parts_(parts), wake_(std::move(wake)), inbox_(std::make_shared<Inbox>(wake_)) {}

JobController::~JobController() { inbox_->Close(); }

absl::Status JobController::Tick(absl::Time now) {
  if (!recovered_) {
    MT_RETURN_IF_ERROR(Recover(now));
    recovered_ = true;
  }
  MT_ASSIGN_OR_RETURN(std::vector<JobRecord> jobs, parts_.store.Active());
  MT_ASSIGN_OR_RETURN(const bool changed, TendWaiting(jobs, now));
  if (changed) {
    MT_ASSIGN_OR_RETURN(jobs, parts_.store.Active());
  }
  parts_.observer.OnActiveJobs(jobs);
  TakeAnswers(jobs, now);
  TakeRunnerEvents(now);
  CommitCheckpoints(now);
  TakeWishes(jobs, now);
  TakeDrain(now);
  TakePreemption(jobs, now);
  MT_RETURN_IF_ERROR(StartNext(jobs, now));
  MT_RETURN_IF_ERROR(Advance(now));
  idle_ = current_ == nullptr;
  return absl::OkStatus();
}

void JobController::Drain() {
  draining_ = true;
  wake_();
}

absl::Status JobController::Recover(absl::Time now) {
  MT_ASSIGN_OR_RETURN(const std::vector<JobRecord> jobs, parts_.store.Active());
  for (const JobRecord& record : jobs) {
    if (record.job.state() != v1::JOB_STATE_QUEUED && record.job.state() != v1::JOB_STATE_PAUSED) {
      MT_RETURN_IF_ERROR(RecoverOne(record, now));
    }
  }
  return absl::OkStatus();
}

absl::Status JobController::RecoverOne(const JobRecord& record, absl::Time now) {
  const v1::Job& job = record.job;
  JobChange change(record);
  if (job.state() == v1::JOB_STATE_RUNNING && job.phase() == kPublishingPhase) {
    current_ = std::make_unique<Current>(
        Current{.change = std::move(change), .stage = Current::Stage::kTrained});
    return absl::OkStatus();
  }
  parts_.materials.Discard(job);
  const v1::JobReason reason = MakeReason(
      "SERVER_DIED",
      absl::StrCat("the server stopped without warning in attempt ", job.attempt(), " of the job"));
  if (record.wishes.cancel || job.state() == v1::JOB_STATE_CANCELLING) {
    change.SetState(v1::JOB_STATE_CANCELLING, now);
    change.End(v1::JOB_STATE_CANCELLED, CancelledReason(), now);
  } else if (change.CanRetry()) {
    change.PutBack(reason, /*counts=*/true, now);
  } else {
    change.End(v1::JOB_STATE_FAILED, reason, now);
  }
  Log(change.job(), now,
      absl::StrCat("after a restart of the server: ", StateWord(change.job().state())));
  MT_RETURN_IF_ERROR(Save(change));
  parts_.observer.OnRecovered(change.job());
  return absl::OkStatus();
}

absl::StatusOr<bool> JobController::TendWaiting(const std::vector<JobRecord>& jobs,
                                                absl::Time now) {
  bool changed = false;
  for (const JobRecord& record : jobs) {
    if (current_ == nullptr || current_->change.job().name() != record.job.name()) {
      MT_ASSIGN_OR_RETURN(const bool this_changed, TendOne(record, now));
      changed = changed || this_changed;
    }
  }
  return changed;
}

absl::StatusOr<bool> JobController::TendOne(const JobRecord& record, absl::Time now) {
  const bool is_queued = record.job.state() == v1::JOB_STATE_QUEUED;
  const bool is_paused = record.job.state() == v1::JOB_STATE_PAUSED;
  if (IsBeingPublished(record.job.name())) {
    return false;  // its answer comes first
  }
  if (IsTrained(record.job) && (record.wishes.cancel || record.wishes.pause == record.job.held())) {
    PublishWaiting(record, now);
    return false;
  }
  JobChange change(record);
  if (record.wishes.cancel && (is_queued || is_paused)) {
    change.End(v1::JOB_STATE_CANCELLED, CancelledReason(), now);
    Log(change.job(), now, is_paused ? "cancelled while paused" : "cancelled in the queue");
  } else if (is_paused && !record.wishes.pause) {
    change.Resume(now);
    Log(change.job(), now, "resumed: waits in the queue");
  } else if (is_queued && record.wishes.pause != record.job.held()) {
    change.SetHeld(record.wishes.pause, now);
    Log(change.job(), now, record.wishes.pause ? "held in the queue" : "resumed");
  } else {
    return false;
  }
  MT_RETURN_IF_ERROR(Save(change));
  return true;
}

absl::Status JobController::StartNext(const std::vector<JobRecord>& jobs, absl::Time now) {
  if (current_ != nullptr || draining_ || !parts_.runner.Ready()) {
    return absl::OkStatus();
  }
  const int next = NextJob(jobs, [&](const JobRecord& record) { return IsPostponed(record, now); });
  if (next < 0) {
    return absl::OkStatus();
  }
  JobChange change(jobs[next]);
  if (const absl::Status room = parts_.checkpoints.CheckRoom(change.job()); !room.ok()) {
    return WaitForRoom(std::move(change), room, now);
  }
  if (postponed_.contains(change.job().name()) || !IsToldAfterItsWait(change.record())) {
    change.ClearReason();  // it was one to wait
  }
  change.SetState(v1::JOB_STATE_PREPARING, now);
  Log(change.job(), now, absl::StrCat("attempt ", change.job().attempt(), ": preparing"));
  MT_RETURN_IF_ERROR(Save(change));  // else the next tick chooses anew
  current_ = std::make_unique<Current>(
      Current{.change = std::move(change), .stage = Current::Stage::kReserved});
  return absl::OkStatus();
}

absl::Status JobController::WaitForRoom(JobChange change, const absl::Status& room,
                                        absl::Time now) {
  Postponement& postponed = postponed_[change.job().name()];
  postponed.until = now + kRoomDelay;
  postponed.resume_count = change.record().wishes.resume_count;
  wake_();  // for others, which may need less
  const std::string code = ReasonOf(room).empty() ? kDiskFailed : ReasonOf(room);
  if (change.job().reason().code() == code) {
    return absl::OkStatus();
  }
  change.SetReason(MakeReason(code, std::string(room.message())), now);
  Log(change.job(), now, absl::StrCat("waits: ", std::string(room.message())));
  return Save(change);
}

absl::Duration JobController::Postpone(const JobRecord& record, absl::Time now) {
  Postponement& postponed = postponed_[record.job.name()];
  const bool is_again = std::exchange(postponed.resume_count, record.wishes.resume_count) ==
                        record.wishes.resume_count;
  postponed.delay =
      is_again ? std::clamp(2 * postponed.delay, kFirstDelay, kLongestDelay) : kFirstDelay;
  postponed.until = now + postponed.delay;
  return postponed.delay;
}

bool JobController::WasPostponed(const JobRecord& record) const {
  const auto found = postponed_.find(record.job.name());
  return found != postponed_.end() && found->second.resume_count == record.wishes.resume_count;
}

bool JobController::IsPostponed(const JobRecord& record, absl::Time now) const {
  if (!WasPostponed(record)) {
    return false;
  }
  const absl::Duration left = postponed_.at(record.job.name()).until - now;
  return left > absl::ZeroDuration() && left <= kLongestDelay;  // else the wall clock was set
}

absl::Status JobController::Advance(absl::Time now) {
  while (current_ != nullptr) {
    if (current_->stage == Current::Stage::kPrepared && parts_.runner.Ready()) {
      ChooseStart(now);
    }
    if (current_->stage == Current::Stage::kEnded) {
      // Before anybody sees its end, and wishes to go back to a checkpoint.
      parts_.checkpoints.Settle(current_->change.record());
    }
    if (current_->change.changed()) {
      MT_RETURN_IF_ERROR(Save(current_->change));
    }
    if (!Act()) {
      return absl::OkStatus();
    }
  }
  return absl::OkStatus();
}

void JobController::ChooseStart(absl::Time now) {
  JobChange& change = current_->change;
  absl::StatusOr<JobStart> start = parts_.checkpoints.StartOf(change.record());
  if (absl::IsNotFound(start.status())) {
    EndCurrent(v1::JOB_STATE_FAILED,
               MakeReason("CHECKPOINT_GONE", std::string(start.status().message())), now);
    return;
  }
  absl::Status status = start.status();
  if (status.ok() && start->checkpoint.has_value()) {
    status = RestoreFigures(*start->checkpoint, now);
  }
  if (!status.ok()) {
    const std::string code = ReasonOf(status);  // of the database; the disk's errors have none
    TryLater(MakeReason(code.empty() ? kCheckpointUnreadable : code, std::string(status.message())),
             now);
    return;
  }
  const absl::StatusOr<std::string> folder = parts_.checkpoints.Folder(change.job());
  if (!folder.ok()) {
    TryLater(MakeReason(kDiskFailed, std::string(folder.status().message())), now);
    return;
  }
  current_->checkpoint_folder = *folder;
  change.SetStart(start->checkpoint.has_value() ? &*start->checkpoint : nullptr);
  TellStart(*start, now);
  current_->start = std::move(start->checkpoint);
  current_->stage = Current::Stage::kChosen;
}

void JobController::TellStart(const JobStart& start, absl::Time now) {
  JobChange& change = current_->change;
  std::string line = start.checkpoint.has_value()
                         ? absl::StrCat("goes on from ", start.checkpoint->name())
                         : "begins at its first step";
  if (!start.passed_over.empty()) {
    absl::StrAppend(&line, ", since ", start.passed_over);
    change.SetReason(
        MakeReason(start.checkpoint.has_value() ? "CHECKPOINT_DAMAGED" : "CHECKPOINTS_LOST", line),
        now);
  }
  if (start.checkpoint.has_value() || !start.passed_over.empty()) {
    Log(change.job(), now, line);
  }
  if (start.checkpoint.has_value() &&
      start.checkpoint->name() == change.record().wishes.start_checkpoint) {
    Log(change.job(), now,
        "its user wishes that: checkpoints of later steps are removed when the next one is saved");
  }
}

absl::Status JobController::RestoreFigures(const v1::Checkpoint& start, absl::Time now) {
  const v1::Job& job = current_->change.job();
  if (JobOfCheckpoint(start.name()) != job.name()) {
    return absl::OkStatus();  // what it remembers is another job's
  }
  const absl::StatusOr<std::vector<v1::JobEvent>> remembered = parts_.checkpoints.Figures(start);
  if (absl::IsDataLoss(remembered.status()) || absl::IsNotFound(remembered.status())) {
    return absl::OkStatus();  // the engine finds that too, and says so
  }
  MT_RETURN_IF_ERROR(remembered.status());
  MT_ASSIGN_OR_RETURN(const std::vector<v1::JobEvent> told,
                      parts_.store.Events(job.name(), 0, static_cast<int>(kMaxEventsPerJob)));
  const int64_t first_step =
      job.fork_mode() == v1::FORK_MODE_FULL_STATE ? StepOfCheckpoint(job.forked_from()) : 0;
  const std::vector<v1::JobEvent> missing = FiguresNotTold(*remembered, told, first_step);
  for (const v1::JobEvent& event : missing) {
    current_->change.AddRemembered(event);
  }
  if (!missing.empty()) {
    Log(job, now,
        absl::StrCat("figures of ", missing.size(), " steps and evaluations, which were ",
                     "lost on their way, are those that ", start.name(), " remembers"));
  }
  return absl::OkStatus();
}

bool JobController::Act() {
  using Stage = Current::Stage;
  const v1::Job& job = current_->change.job();
  const int64_t number = last_number_ + 1;
  const std::shared_ptr<Inbox> inbox = inbox_;
  switch (current_->stage) {
    case Stage::kReserved:
      current_->stage = Stage::kPreparing;
      current_->number = last_number_ = number;
      parts_.materials.Prepare(
          job, [inbox, number](absl::StatusOr<JobMaterials::Prepared> prepared) {
            inbox->Put({.number = number,
                        .status = prepared.status(),
                        .prepared = prepared.ok() ? *prepared : JobMaterials::Prepared()});
          });
      return false;
    case Stage::kChosen:
      StartRun();
      return false;
    case Stage::kRunning:
      if (current_->save.has_value()) {
        parts_.runner.Save(current_->save->trigger, current_->save->then_stop);
        current_->save.reset();
      }
      return false;
    case Stage::kMustStop:
      current_->stage = Stage::kStopping;
      parts_.runner.Stop();
      return false;
    case Stage::kTrained:
      current_->stage = Stage::kPublishing;
      current_->number = Publish(job);
      return false;
    case Stage::kEnded:
      current_.reset();
      wake_();  // for the next job
      return true;
    default:
      return false;
  }
}

void JobController::StartRun() {
  const v1::Job& job = current_->change.job();
  engine::v1::RunJobRequest request;
  request.set_name(job.name());
  *request.mutable_spec() = job.spec();
  request.set_model_path(current_->prepared.model_path);
  request.set_model_fingerprint(current_->prepared.model_fingerprint);
  request.set_data_path(current_->prepared.data_path);
  request.set_data_fingerprint(current_->prepared.data_fingerprint);
  request.set_evaluation_data_path(current_->prepared.evaluation_data_path);
  request.set_evaluation_data_fingerprint(current_->prepared.evaluation_data_fingerprint);
  request.set_output_path(parts_.materials.OutputFolder(job));
  request.set_checkpoint_folder(current_->checkpoint_folder);
  if (current_->start.has_value()) {
    const bool weights_only =
        job.fork_mode() == v1::FORK_MODE_WEIGHTS && current_->start->name() == job.forked_from();
    (weights_only ? request.mutable_weights_checkpoint_path()
                  : request.mutable_resume_checkpoint_path())
        ->assign(current_->start->path());
  }
  current_->stage = Current::Stage::kRunning;
  current_->number = ++last_number_;
  parts_.runner.Start(current_->number, request);
}

void JobController::EndCurrent(v1::JobState state, const v1::JobReason& reason, absl::Time now) {
  if (state != v1::JOB_STATE_SUCCEEDED) {
    parts_.materials.Discard(current_->change.job());
  }
  current_->change.End(state, reason, now);
  current_->stage = Current::Stage::kEnded;
  Log(current_->change.job(), now,
      absl::StrCat(StateWord(state), reason.code().empty() ? "" : ": ", reason.message()));
}

void JobController::PutBackCurrent(const v1::JobReason& reason, bool counts, absl::Time now) {
  parts_.materials.Discard(current_->change.job());
  current_->change.PutBack(reason, counts, now);
  current_->stage = Current::Stage::kEnded;
  Log(current_->change.job(), now, absl::StrCat("back in the queue: ", reason.message()));
}

void JobController::TryLater(v1::JobReason reason, absl::Time now) {
  if (reason.code() == kCheckpointUnreadable) {
    const std::string id = JobIdOf(current_->change.job());
    absl::StrAppend(reason.mutable_message(), "; `megatrain resume ", id,
                    " --from CHECKPOINT` goes on from an earlier one of `megatrain checkpoint ls ",
                    id, "`");
  }
  const absl::Duration delay = Postpone(current_->change.record(), now);
  absl::StrAppend(reason.mutable_message(), "; it is tried again in ", absl::FormatDuration(delay),
                  " and at a resume");
  PutBackCurrent(reason, /*counts=*/false, now);
}

absl::Status JobController::Save(JobChange& change) {
  MT_RETURN_IF_ERROR(change.Save(parts_.store));
  parts_.observer.OnChange(change.job());
  if (IsFinal(change.job().state())) {
    postponed_.erase(change.job().name());
    parts_.observer.OnEnd(change.job());
  }
  return absl::OkStatus();
}

void JobController::Log(const v1::Job& job, absl::Time now, const std::string& line) {
  // A log that cannot be written must not stop a job: its events are in the store.
  parts_.log.Append(JobIdOf(job), now, line).IgnoreError();
  parts_.observer.OnLog(job);
}

}  // namespace megatrain
