#include <memory>
#include <ostream>
#include <string>

#include "client/cli/job_output.h"
#include "client/cli/text.h"
#include "client/cli/verbs.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

absl::StatusOr<ExitCode> Show(Session& session, const std::string& name) {
  v1::GetJobRequest request;
  request.set_name(name);
  MT_ASSIGN_OR_RETURN(
      const v1::Job job,
      session.connection().Call(CallKind::kRead, &v1::JobService::Stub::GetJob, request));
  if (!session.wants_table()) {
    PrintJobState(session, job);
    return ExitCode::kOk;
  }
  for (const auto& [fact, value] : JobFacts(job, session.environment().clock.WallNow())) {
    session.out() << fact << ":" << std::string(16 - fact.size(), ' ') << Printable(value) << "\n";
  }
  session.out().flush();
  PrintAdvice(session, job);
  return ExitCode::kOk;
}

}  // namespace

void AddShow(CLI::App& app, Verb& chosen) {
  auto job = std::make_shared<std::string>();
  CLI::App* verb = app.add_subcommand("show", "Shows all that is known of a job");
  verb->add_option("JOB", *job, "The job's name")->required();
  verb->callback([job, &chosen] {
    chosen = [job](Session& session) { return Show(session, FullName("jobs", *job)); };
  });
}

}  // namespace megatrain
