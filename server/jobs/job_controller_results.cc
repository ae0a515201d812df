// Results: what was trained becomes a version, or waits for it in the queue.

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/errors/errors.h"
#include "server/jobs/job_controller.h"
#include "server/jobs/job_controller_current.h"

namespace megatrain {
namespace {

v1::JobReason NotStoredReason(const absl::Status& status, const std::string& message) {
  const std::string code = ReasonOf(status);
  return MakeReason(code.empty() ? "OUTPUT_NOT_STORED" : code, message);
}

// There is no usable result any more. All else, a full disk above all, speaks against the disk, the
// database or their state, and nothing is lost while somebody sees to that.
bool IsLost(const absl::Status& status) {
  return absl::IsNotFound(status) || absl::IsInvalidArgument(status);
}

}  // namespace

int64_t JobController::Publish(const v1::Job& job) {
  const std::shared_ptr<Inbox> inbox = inbox_;
  const int64_t number = ++last_number_;
  parts_.materials.Publish(job, [inbox, number](absl::StatusOr<std::string> version) {
    inbox->Put({.number = number,
                .status = version.status(),
                .version = version.ok() ? *version : std::string()});
  });
  return number;
}

// A wish to cancel one that waits comes after a last try: whether the version was made, and only
// the news of it lost, nobody else can tell.
void JobController::PublishWaiting(const JobRecord& record, absl::Time now) {
  if (!draining_ && (record.wishes.cancel || (!record.wishes.pause && !IsPostponed(record, now)))) {
    waiting_publications_.emplace(Publish(record.job), record.job.name());
  }
}

bool JobController::IsBeingPublished(const std::string& job) const {
  for (const auto& [number, name] : waiting_publications_) {
    if (name == job) {
      return true;
    }
  }
  return false;
}

// What cannot be saved is published again, which changes nothing.
void JobController::TakeWaitingPublication(const JobRecord& record, const Answer& answer,
                                           absl::Time now) {
  JobChange change(record);
  SettlePublication(change, answer, now);
  if (!Save(change).ok()) {
    Postpone(record, now);
  }
}

void JobController::SettlePublication(JobChange& change, const Answer& answer, absl::Time now) {
  const v1::Job& job = change.job();
  if (answer.status.ok()) {
    change.SetOutputVersion(answer.version);
    change.End(v1::JOB_STATE_SUCCEEDED, v1::JobReason(), now);
    Log(job, now, "SUCCEEDED");
    return;
  }
  const std::string message(answer.status.message());
  if (change.record().wishes.cancel) {
    parts_.materials.Discard(job);
    if (job.state() == v1::JOB_STATE_RUNNING) {
      change.SetState(v1::JOB_STATE_CANCELLING, now);
    }
    change.End(v1::JOB_STATE_CANCELLED, CancelledReason(), now);
    Log(job, now, "cancelled while its result waited to be stored");
  } else if (!IsLost(answer.status)) {
    const absl::Duration delay = Postpone(change.record(), now);
    change.WaitWithResult(
        NotStoredReason(answer.status,
                        absl::StrCat("trained, but its result cannot be stored yet: ", message,
                                     "; it is kept, and tried again in ",
                                     absl::FormatDuration(delay), " and at a resume")),
        now);
    Log(job, now, job.reason().message());
  } else {
    parts_.materials.Discard(job);
    const v1::JobReason reason = NotStoredReason(
        answer.status, absl::StrCat("the result of the training is lost: ", message));
    if (change.CanRetry()) {
      change.PutBack(reason, /*counts=*/true, now);
    } else {
      change.End(v1::JOB_STATE_FAILED, reason, now);
    }
    Log(job, now, reason.message());
  }
}

}  // namespace megatrain
