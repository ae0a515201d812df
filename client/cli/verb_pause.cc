#include <memory>
#include <string>

#include "client/cli/interrupt_scope.h"
#include "client/cli/job_output.h"
#include "client/cli/poll.h"
#include "client/cli/text.h"
#include "client/cli/verbs.h"
#include "client/lib/error_text.h"
#include "client/lib/random.h"
#include "google/protobuf/util/time_util.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

using Stub = v1::JobService::Stub;

// Nothing more comes of the wish to pause it, which `asked` answered. One that held then is to try
// again first.
bool IsSettled(const v1::Job& asked, const v1::Job& job) {
  const bool is_old_news = IsHolding(asked) && asked.update_time() == job.update_time();
  return job.state() == v1::JOB_STATE_PAUSED || job.held() || IsFinal(job.state()) ||
         (IsHolding(job) && !is_old_news);
}

absl::StatusOr<v1::Job> WaitUntilSettled(Session& session, const v1::Job& asked) {
  v1::GetJobRequest request;
  request.set_name(asked.name());
  const InterruptScope scope(session.environment().interruption);
  return PollUntil<v1::Job>(
      session.connection(),
      [&] { return session.connection().Call(CallKind::kRead, &Stub::GetJob, request); },
      [&asked](const v1::Job& job) { return IsSettled(asked, job); });
}

absl::StatusOr<ExitCode> Pause(Session& session, const std::string& name, bool wait) {
  v1::PauseJobRequest request;
  request.set_name(name);
  request.set_request_id(NewRequestId());
  MT_ASSIGN_OR_RETURN(v1::Job job,
                      session.connection().Call(CallKind::kWrite, &Stub::PauseJob, request));
  if (wait) {
    MT_ASSIGN_OR_RETURN(job, WaitUntilSettled(session, job));
  }
  PrintJobState(session, job);
  PrintAdvice(session, job);
  if (IsHolding(job)) {
    return job.reason().code() == "DISK_FULL" ? ExitCode::kQuota : ExitCode::kFailed;
  }
  return IsFinal(job.state()) ? ExitCodeOf(job.state()) : ExitCode::kOk;
}

}  // namespace

void AddPause(CLI::App& app, Verb& chosen) {
  struct Flags {
    std::string job;
    bool wait = false;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* verb = app.add_subcommand("pause", "Saves a job's state and stops it");
  verb->add_option("JOB", flags->job, "The job's name")->required();
  verb->add_flag("--wait", flags->wait, "Waits until it is saved");
  verb->footer(
      "megatrain resume JOB lets it go on, bit for bit as if it had never stopped: on a GPU with\n"
      "train.attention: deterministic.");
  verb->callback([flags, &chosen] {
    chosen = [flags](Session& session) {
      return Pause(session, FullName("jobs", flags->job), flags->wait);
    };
  });
}

}  // namespace megatrain
