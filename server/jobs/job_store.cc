#include "server/jobs/job_store.h"

#include "absl/strings/str_cat.h"
#include "server/errors/errors.h"

namespace megatrain {

absl::Status CheckCancellable(const v1::Job& job) {
  if (!IsFinal(job.state()) || job.state() == v1::JOB_STATE_CANCELLED) {
    return absl::OkStatus();
  }
  const std::string state = v1::JobState_Name(job.state()).substr(sizeof("JOB_STATE_") - 1);
  return PreconditionFailed(job.name(), "JOB_ENDED",
                            absl::StrCat(job.name(), " has ended already: it is ", state),
                            {{"state", state}});
}

}  // namespace megatrain
