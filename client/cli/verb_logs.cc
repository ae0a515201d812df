#include <memory>
#include <ostream>
#include <string>

#include "client/cli/follow_output.h"
#include "client/cli/interrupt_scope.h"
#include "client/cli/text.h"
#include "client/cli/verbs.h"
#include "client/lib/follow.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

absl::StatusOr<ExitCode> PrintLog(Session& session, const std::string& name, bool follow) {
  v1::StreamLogsRequest request;
  request.set_name(name);
  request.set_follow(follow);
  const InterruptScope scope(session.environment().interruption);
  const absl::Status status = FollowLog(session.connection(), request, [&](std::string_view text) {
    session.out() << text << std::flush;
  });
  if (session.environment().interruption.triggered()) {
    return follow ? ReportDetached(session, name) : ExitCode::kInterrupted;
  }
  MT_RETURN_IF_ERROR(status);
  if (!follow) {
    return ExitCode::kOk;
  }
  v1::GetJobRequest get;
  get.set_name(name);
  MT_ASSIGN_OR_RETURN(const v1::Job job, session.connection().Call(
                                             CallKind::kRead, &v1::JobService::Stub::GetJob, get));
  return ReportEnd(session, job);
}

}  // namespace

void AddLogs(CLI::App& app, Verb& chosen) {
  struct Flags {
    std::string job;
    bool follow = false;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* verb = app.add_subcommand("logs", "Prints a job's log");
  verb->add_option("JOB", flags->job, "The job's name")->required();
  verb->add_flag("-f,--follow", flags->follow, "Waits for more until the job ends");
  verb->callback([flags, &chosen] {
    chosen = [flags](Session& session) {
      return PrintLog(session, FullName("jobs", flags->job), flags->follow);
    };
  });
}

}  // namespace megatrain
