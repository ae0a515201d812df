#include <memory>
#include <string>

#include "client/cli/interrupt_scope.h"
#include "client/cli/job_output.h"
#include "client/cli/poll.h"
#include "client/cli/text.h"
#include "client/cli/verbs.h"
#include "client/lib/error_text.h"
#include "client/lib/random.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

using Stub = v1::JobService::Stub;

// Nothing more comes of the wish to pause it.
bool IsSettled(const v1::Job& job) {
  return job.state() == v1::JOB_STATE_PAUSED || job.held() || IsHolding(job) ||
         IsFinal(job.state());
}

absl::StatusOr<v1::Job> WaitUntilSettled(Session& session, const std::string& name) {
  v1::GetJobRequest request;
  request.set_name(name);
  const InterruptScope scope(session.environment().interruption);
  return PollUntil<v1::Job>(
      session.connection(),
      [&] { return session.connection().Call(CallKind::kRead, &Stub::GetJob, request); },
      IsSettled);
}

absl::StatusOr<ExitCode> Pause(Session& session, const std::string& name, bool wait) {
  v1::PauseJobRequest request;
  request.set_name(name);
  request.set_request_id(NewRequestId());
  MT_ASSIGN_OR_RETURN(v1::Job job,
                      session.connection().Call(CallKind::kWrite, &Stub::PauseJob, request));
  if (wait) {
    MT_ASSIGN_OR_RETURN(job, WaitUntilSettled(session, name));
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
