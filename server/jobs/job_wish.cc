#include "server/jobs/job_wish.h"

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "server/errors/errors.h"

namespace megatrain {
namespace {

absl::Status WrongState(const v1::Job& job, const std::string& reason, const std::string& text) {
  return PreconditionFailed(job.name(), reason, absl::StrCat(job.name(), " ", text),
                            {{"job", job.name()}, {"state", StateWord(job.state())}});
}

absl::Status CheckAlive(const JobRecord& record) {
  MT_RETURN_IF_ERROR(CheckNotEnded(record.job));
  if (record.wishes.cancel || record.job.state() == v1::JOB_STATE_CANCELLING) {
    return WrongState(record.job, "JOB_CANCELLING", "is being cancelled");
  }
  return absl::OkStatus();
}

absl::Status ApplySave(JobRecord& record) {
  if (record.job.state() != v1::JOB_STATE_RUNNING && record.job.state() != v1::JOB_STATE_PAUSING) {
    return WrongState(record.job, "JOB_NOT_RUNNING",
                      absl::StrCat("does no steps now: it is ", StateWord(record.job.state()),
                                   "; only a RUNNING job can be saved"));
  }
  ++record.wishes.save_count;
  return absl::OkStatus();
}

absl::Status CheckCanStartFrom(const v1::Job& job) {
  if (job.phase() == kPublishingPhase) {
    return WrongState(job, "JOB_TRAINED",
                      "cannot go on from a checkpoint: it is trained, and its result waits to be "
                      "stored; fork the checkpoint");
  }
  return job.state() == v1::JOB_STATE_PAUSED || job.state() == v1::JOB_STATE_QUEUED
             ? absl::OkStatus()
             : WrongState(job, "JOB_NOT_PAUSED",
                          absl::StrCat("cannot go on from a checkpoint: it is ",
                                       StateWord(job.state()), "; pause it first"));
}

absl::Status ApplyResume(const JobWish& wish, JobRecord& record) {
  const v1::Job& job = record.job;
  const bool is_paused = job.state() == v1::JOB_STATE_PAUSED;
  const bool holds = job.phase() == kHoldingPhase;
  const bool waits = job.state() == v1::JOB_STATE_QUEUED && job.has_reason();
  if (!record.wishes.pause && !is_paused && !holds && !waits) {
    return WrongState(job, "JOB_NOT_PAUSED",
                      absl::StrCat("is not paused: it is ", StateWord(job.state())));
  }
  if (!wish.start_checkpoint.empty()) {
    MT_RETURN_IF_ERROR(CheckCanStartFrom(job));
  }
  // Where one was paused, it was saved: what was wished before is done.
  if (is_paused || !wish.start_checkpoint.empty()) {
    record.wishes.start_checkpoint = wish.start_checkpoint;
    record.wishes.start_after_number = wish.start_after_number;
  }
  record.wishes.pause = false;
  ++record.wishes.resume_count;
  record.wishes.save_count += holds ? 1 : 0;
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckCancellable(const v1::Job& job) {
  return job.state() == v1::JOB_STATE_CANCELLED ? absl::OkStatus() : CheckNotEnded(job);
}

absl::Status CheckNotEnded(const v1::Job& job) {
  return IsFinal(job.state())
             ? WrongState(job, "JOB_ENDED",
                          absl::StrCat("has ended already: it is ", StateWord(job.state())))
             : absl::OkStatus();
}

absl::Status ApplyWish(const JobWish& wish, JobRecord& record) {
  if (wish.kind == JobWish::Kind::kCancel) {
    MT_RETURN_IF_ERROR(CheckCancellable(record.job));
    record.wishes.cancel = true;
    return absl::OkStatus();
  }
  MT_RETURN_IF_ERROR(CheckAlive(record));
  switch (wish.kind) {
    case JobWish::Kind::kSave:
      return ApplySave(record);
    case JobWish::Kind::kResume:
      return ApplyResume(wish, record);
    case JobWish::Kind::kPause:
    case JobWish::Kind::kCancel:
      break;
  }
  const bool stops = record.wishes.pause || record.job.state() == v1::JOB_STATE_PAUSING;
  if (stops && record.job.phase() == kHoldingPhase) {
    ++record.wishes.save_count;  // it stops once its state is saved, which is tried again
  }
  record.wishes.pause = true;
  return absl::OkStatus();
}

}  // namespace megatrain
