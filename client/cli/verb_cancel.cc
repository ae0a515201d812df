#include <memory>
#include <string>

#include "client/cli/job_output.h"
#include "client/cli/text.h"
#include "client/cli/verbs.h"
#include "client/lib/random.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

absl::StatusOr<ExitCode> Cancel(Session& session, const std::string& name) {
  v1::CancelJobRequest request;
  request.set_name(name);
  request.set_request_id(NewRequestId());
  MT_ASSIGN_OR_RETURN(
      const v1::Job job,
      session.connection().Call(CallKind::kWrite, &v1::JobService::Stub::CancelJob, request));
  PrintJobState(session, job);
  return ExitCode::kOk;
}

}  // namespace

void AddCancel(CLI::App& app, Verb& chosen) {
  auto job = std::make_shared<std::string>();
  CLI::App* verb = app.add_subcommand("cancel", "Stops a job");
  verb->add_option("JOB", *job, "The job's name")->required();
  verb->callback([job, &chosen] {
    chosen = [job](Session& session) { return Cancel(session, FullName("jobs", *job)); };
  });
}

}  // namespace megatrain
