#include "server/jobs/job_controller.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status_macros.h"
#include "server/errors/errors.h"
#include "server/jobs/scheduling_policy.h"

namespace megatrain {
namespace {

// The phase of a job whose weights are complete on disk and become a version.
constexpr char kPublishing[] = "publishing";
// Another attempt would most likely stall too, and after as long.
constexpr char kEngineStalled[] = "ENGINE_STALLED";

v1::JobReason CancelledReason() {
  return MakeReason("CANCELLED_BY_USER", "the job was cancelled by a user");
}

std::string StateWord(v1::JobState state) {
  return v1::JobState_Name(state).substr(sizeof("JOB_STATE_") - 1);
}

}  // namespace

// Answers of the materials on their way to the controller's thread; outlives the controller as
// long as an answer is out.
class JobController::Inbox {
 public:
  explicit Inbox(std::function<void()> wake) : wake_(std::move(wake)) {}

  struct Answer {
    int64_t number = 0;
    absl::Status status;
    JobMaterials::Prepared prepared;
    std::string version;
  };

  void Put(Answer answer) {
    MutexLock lock(&mutex_);
    if (!closed_) {
      answers_.push_back(std::move(answer));
      wake_();
    }
  }

  std::vector<Answer> TakeAll() {
    MutexLock lock(&mutex_);
    return std::exchange(answers_, {});
  }

  // No wake after this.
  void Close() {
    MutexLock lock(&mutex_);
    closed_ = true;
  }

 private:
  const std::function<void()> wake_;
  Mutex mutex_;
  std::vector<Answer> answers_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

struct JobController::Current {
  enum class Stage {
    kReserved,    // chosen; to be prepared once that is saved
    kPreparing,   // the materials work
    kPrepared,    // to be started
    kRunning,     // the engine works
    kMustStop,    // the engine is to be stopped once that is saved
    kStopping,    // the engine stops
    kTrained,     // to be published once that is saved
    kPublishing,  // the materials work
    kEnded,       // final or back in the queue, once that is saved
  };
  enum class StopReason { kNone, kCancel, kDrain };

  JobChange change;
  Stage stage;
  StopReason stop_reason = StopReason::kNone;
  int64_t number = 0;  // of the preparation, run or publication that is out
  JobMaterials::Prepared prepared;
};

JobController::JobController(const Parts& parts, std::function<void()> wake)
    : parts_(parts), wake_(std::move(wake)), inbox_(std::make_shared<Inbox>(wake_)) {}

JobController::~JobController() { inbox_->Close(); }

absl::Status JobController::Tick(absl::Time now) {
  if (!recovered_) {
    MT_RETURN_IF_ERROR(Recover(now));
    recovered_ = true;
  }
  MT_ASSIGN_OR_RETURN(const std::vector<JobRecord> jobs, parts_.store.Active());
  parts_.observer.OnActiveJobs(jobs);
  MT_RETURN_IF_ERROR(CancelWaiting(jobs, now));
  TakeAnswers(now);
  TakeRunnerEvents(now);
  TakeWish(jobs, now);
  TakeDrain(now);
  StartNext(jobs, now);
  MT_RETURN_IF_ERROR(Advance());
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
    if (record.job.state() != v1::JOB_STATE_QUEUED) {
      MT_RETURN_IF_ERROR(RecoverOne(record, now));
    }
  }
  return absl::OkStatus();
}

absl::Status JobController::RecoverOne(const JobRecord& record, absl::Time now) {
  const v1::Job& job = record.job;
  JobChange change(record);
  if (job.state() == v1::JOB_STATE_RUNNING && job.phase() == kPublishing) {
    current_ = std::make_unique<Current>(
        Current{.change = std::move(change), .stage = Current::Stage::kTrained});
    return absl::OkStatus();
  }
  parts_.materials.Discard(job);
  const v1::JobReason reason = MakeReason(
      "SERVER_DIED",
      absl::StrCat("the server stopped without warning in attempt ", job.attempt(), " of the job"));
  if (record.cancel_wished || job.state() == v1::JOB_STATE_CANCELLING) {
    change.SetState(v1::JOB_STATE_CANCELLING, now);
    change.End(v1::JOB_STATE_CANCELLED, CancelledReason(), now);
  } else if (change.CanRetry()) {
    change.PutBack(reason, /*counts=*/true, now);
  } else {
    change.End(v1::JOB_STATE_FAILED, reason, now);
  }
  Log(change.job(), now,
      absl::StrCat("after a restart of the server: ", StateWord(change.job().state())));
  return Save(change);
}

absl::Status JobController::CancelWaiting(const std::vector<JobRecord>& jobs, absl::Time now) {
  for (const JobRecord& record : jobs) {
    const bool is_current =
        current_ != nullptr && current_->change.job().name() == record.job.name();
    if (record.cancel_wished && record.job.state() == v1::JOB_STATE_QUEUED && !is_current) {
      JobChange change(record);
      change.End(v1::JOB_STATE_CANCELLED, CancelledReason(), now);
      Log(change.job(), now, "cancelled in the queue");
      MT_RETURN_IF_ERROR(Save(change));
    }
  }
  return absl::OkStatus();
}

void JobController::StartNext(const std::vector<JobRecord>& jobs, absl::Time now) {
  if (current_ != nullptr || draining_ || !parts_.runner.Ready()) {
    return;
  }
  const int next = NextJob(jobs);
  if (next < 0) {
    return;
  }
  JobChange change(jobs[next]);
  change.SetState(v1::JOB_STATE_PREPARING, now);
  Log(change.job(), now, absl::StrCat("attempt ", change.job().attempt(), ": preparing"));
  current_ = std::make_unique<Current>(
      Current{.change = std::move(change), .stage = Current::Stage::kReserved});
}

void JobController::TakeWish(const std::vector<JobRecord>& jobs, absl::Time now) {
  using Stage = Current::Stage;
  bool wished = false;
  for (const JobRecord& record : jobs) {
    wished = wished || (current_ != nullptr && record.cancel_wished &&
                        record.job.name() == current_->change.job().name());
  }
  if (!wished || current_->stop_reason == Current::StopReason::kCancel) {
    return;
  }
  switch (current_->stage) {
    case Stage::kReserved:
    case Stage::kPreparing:
    case Stage::kPrepared:
      parts_.materials.StopPreparing(current_->change.job().name());
      EndCurrent(v1::JOB_STATE_CANCELLED, CancelledReason(), now);
      return;
    case Stage::kRunning:
    case Stage::kMustStop:
      current_->stage = Stage::kMustStop;
      [[fallthrough]];
    case Stage::kStopping:
      current_->stop_reason = Current::StopReason::kCancel;
      current_->change.SetState(v1::JOB_STATE_CANCELLING, now);
      return;
    case Stage::kTrained:
    case Stage::kPublishing:
    case Stage::kEnded:
      return;  // too late, or for the next tick
  }
}

void JobController::TakeDrain(absl::Time now) {
  using Stage = Current::Stage;
  if (!draining_ || current_ == nullptr) {
    return;
  }
  switch (current_->stage) {
    case Stage::kReserved:
    case Stage::kPreparing:
    case Stage::kPrepared:
      parts_.materials.StopPreparing(current_->change.job().name());
      PutBackCurrent(MakeReason("SERVER_STOPPED", "the server was stopped"), /*counts=*/false, now);
      return;
    case Stage::kRunning:
      current_->stop_reason = Current::StopReason::kDrain;
      current_->stage = Stage::kMustStop;
      return;
    default:
      return;
  }
}

void JobController::TakeAnswers(absl::Time now) {
  using Stage = Current::Stage;
  for (Inbox::Answer& answer : inbox_->TakeAll()) {
    if (current_ == nullptr || answer.number != current_->number) {
      continue;  // of a job that was cancelled meanwhile
    }
    const std::string code = ReasonOf(answer.status);
    const std::string message(answer.status.message());
    if (current_->stage == Stage::kPreparing) {
      current_->prepared = std::move(answer.prepared);
      current_->stage = Stage::kPrepared;
      if (!answer.status.ok()) {
        EndCurrent(v1::JOB_STATE_FAILED,
                   MakeReason(code.empty() ? "PREPARATION_FAILED" : code, message), now);
      }
    } else if (current_->stage == Stage::kPublishing) {
      current_->change.SetOutputVersion(answer.version);
      EndCurrent(answer.status.ok() ? v1::JOB_STATE_SUCCEEDED : v1::JOB_STATE_FAILED,
                 answer.status.ok()
                     ? v1::JobReason()
                     : MakeReason(code.empty() ? "OUTPUT_NOT_STORED" : code, message),
                 now);
    }
  }
}

void JobController::TakeRunnerEvents(absl::Time now) {
  using Stage = Current::Stage;
  for (const RunnerEvent& event : parts_.runner.TakeEvents()) {
    const auto is_open = [this] {
      return current_->stage == Stage::kRunning || current_->stage == Stage::kMustStop ||
             current_->stage == Stage::kStopping;
    };
    if (current_ == nullptr || event.run != current_->number || !is_open()) {
      continue;
    }
    if (const auto* engine_event = std::get_if<engine::v1::RunJobEvent>(&event.kind)) {
      TakeEngineEvent(*engine_event, now);
    } else if (const auto* died = std::get_if<EngineDied>(&event.kind)) {
      TakeRunEnd(died->reason, /*engine_died=*/true, now);
    } else {
      TakeRunEnd(MakeReason("ENGINE_STOPPED", "the engine stopped the job unasked"),
                 /*engine_died=*/false, now);
    }
  }
}

void JobController::TakeEngineEvent(const engine::v1::RunJobEvent& event, absl::Time now) {
  JobChange& change = current_->change;
  switch (event.kind_case()) {
    case engine::v1::RunJobEvent::kPhase:
      change.SetPhase(event.phase(), now);
      Log(change.job(), now, event.phase());
      return;
    case engine::v1::RunJobEvent::kStep:
      change.AddStep(event.step());
      parts_.observer.OnStep(change.job(), event.step());
      return;
    case engine::v1::RunJobEvent::kLogLine:
      Log(change.job(), now, event.log_line());
      return;
    case engine::v1::RunJobEvent::kStarted:
      change.SetStarted(event.started(), now);
      if (change.job().state() == v1::JOB_STATE_PREPARING) {
        change.SetState(v1::JOB_STATE_RUNNING, now);
      }
      return;
    case engine::v1::RunJobEvent::kStreams:
      change.SetPeakHostBytes(event.streams().peak_host_bytes());
      parts_.observer.OnFigures(event.streams());
      return;
    case engine::v1::RunJobEvent::kFinished:
      TakeTrained(event.finished().peak_host_bytes(), now);
      return;
    case engine::v1::RunJobEvent::kFailed:
      TakeRunEnd(event.failed(), /*engine_died=*/false, now);
      return;
    case engine::v1::RunJobEvent::kCheckpoint:
    case engine::v1::RunJobEvent::kCheckpointFailed:
    case engine::v1::RunJobEvent::kEvaluation:
    case engine::v1::RunJobEvent::kPaused:
    case engine::v1::RunJobEvent::KIND_NOT_SET:
      return;
  }
}

void JobController::TakeTrained(int64_t peak_host_bytes, absl::Time now) {
  if (current_->stop_reason == Current::StopReason::kCancel) {
    TakeRunEnd(CancelledReason(), /*engine_died=*/false, now);
    return;
  }
  JobChange& change = current_->change;
  change.SetPeakHostBytes(peak_host_bytes);
  if (change.job().state() != v1::JOB_STATE_RUNNING) {
    change.SetState(v1::JOB_STATE_RUNNING, now);
  }
  change.SetPhase(kPublishing, now);
  current_->stage = Current::Stage::kTrained;
}

void JobController::TakeRunEnd(const v1::JobReason& reason, bool engine_died, absl::Time now) {
  if (current_->stop_reason == Current::StopReason::kCancel) {
    EndCurrent(v1::JOB_STATE_CANCELLED, CancelledReason(), now);
  } else if (current_->stop_reason == Current::StopReason::kDrain) {
    PutBackCurrent(MakeReason("SERVER_STOPPED", "the server was stopped"), /*counts=*/false, now);
  } else if (engine_died && reason.code() != kEngineStalled && current_->change.CanRetry()) {
    PutBackCurrent(reason, /*counts=*/true, now);
  } else {
    EndCurrent(v1::JOB_STATE_FAILED, reason, now);
  }
}

absl::Status JobController::Advance() {
  while (current_ != nullptr) {
    if (current_->change.changed()) {
      MT_RETURN_IF_ERROR(Save(current_->change));
    }
    if (!Act()) {
      return absl::OkStatus();
    }
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
    case Stage::kPrepared: {
      if (!parts_.runner.Ready()) {
        return false;
      }
      engine::v1::RunJobRequest request;
      request.set_name(job.name());
      *request.mutable_spec() = job.spec();
      request.set_model_path(current_->prepared.model_path);
      request.set_data_path(current_->prepared.data_path);
      request.set_output_path(parts_.materials.OutputFolder(job));
      current_->stage = Stage::kRunning;
      current_->number = last_number_ = number;
      parts_.runner.Start(number, request);
      return false;
    }
    case Stage::kMustStop:
      current_->stage = Stage::kStopping;
      parts_.runner.Stop();
      return false;
    case Stage::kTrained:
      current_->stage = Stage::kPublishing;
      current_->number = last_number_ = number;
      parts_.materials.Publish(job, [inbox, number](absl::StatusOr<std::string> version) {
        inbox->Put({.number = number,
                    .status = version.status(),
                    .version = version.ok() ? *version : std::string()});
      });
      return false;
    case Stage::kEnded:
      current_.reset();
      wake_();  // for the next job
      return true;
    default:
      return false;
  }
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

absl::Status JobController::Save(JobChange& change) {
  MT_RETURN_IF_ERROR(change.Save(parts_.store));
  parts_.observer.OnChange(change.job());
  if (IsFinal(change.job().state())) {
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
