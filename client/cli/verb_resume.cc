#include <memory>
#include <ostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/cli/checkpoint_name.h"
#include "client/cli/job_output.h"
#include "client/cli/text.h"
#include "client/cli/verbs.h"
#include "client/lib/error_text.h"
#include "client/lib/random.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

absl::StatusOr<ExitCode> Resume(Session& session, const std::string& name,
                                const std::string& from) {
  v1::ResumeJobRequest request;
  request.set_name(name);
  request.set_request_id(NewRequestId());
  if (!from.empty()) {
    MT_ASSIGN_OR_RETURN(*request.mutable_checkpoint(), CheckpointNameIn(name, from));
  }
  const absl::StatusOr<v1::Job> job =
      session.connection().Call(CallKind::kWrite, &v1::JobService::Stub::ResumeJob, request);
  if (DescribeError(job.status()).reason == "JOB_ENDED") {
    return WithHint(job.status(), session.Command(absl::StrCat("fork ", ShortName(name))));
  }
  MT_RETURN_IF_ERROR(job.status());
  PrintJobState(session, *job);
  if (!from.empty()) {
    session.err() << "Its checkpoints of later steps are removed when the next one is saved.\n";
  }
  session.err() << "Next:\n  " << session.Command(absl::StrCat("watch ", ShortName(name)))
                << std::endl;
  return ExitCode::kOk;
}

}  // namespace

void AddResume(CLI::App& app, Verb& chosen) {
  struct Flags {
    std::string job;
    std::string from;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* verb = app.add_subcommand("resume", "Lets a job go on that is paused or waits");
  verb->add_option("JOB", flags->job, "The job's name")->required();
  verb->add_option("--from", flags->from, "One of its checkpoints (else the newest that is valid)");
  verb->footer(
      "Example: megatrain resume addition --from step-00000120\n"
      "A job that has ended goes on as a fork: megatrain fork JOB");
  verb->callback([flags, &chosen] {
    chosen = [flags](Session& session) {
      return Resume(session, FullName("jobs", flags->job), flags->from);
    };
  });
}

}  // namespace megatrain
