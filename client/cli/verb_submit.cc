#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/follow_output.h"
#include "client/cli/job_file.h"
#include "client/cli/pending_request.h"
#include "client/cli/plan_text.h"
#include "client/cli/text.h"
#include "client/cli/verbs.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

struct SubmitFlags {
  std::string file;
  std::vector<std::string> settings;
  std::string request_id;
  bool follow = false;
  bool wait = false;
  bool detach = false;
  bool dry_run = false;
};

bool IsAnswer(const absl::Status& status) {
  return status.code() != absl::StatusCode::kUnavailable &&
         status.code() != absl::StatusCode::kDeadlineExceeded &&
         status.code() != absl::StatusCode::kCancelled;
}

absl::StatusOr<v1::Job> Create(Session& session, v1::CreateJobRequest request,
                               const SubmitFlags& flags) {
  auto& connection = session.connection();
  request.set_validate_only(flags.dry_run);
  request.set_request_id(flags.request_id);
  if (flags.dry_run || !flags.request_id.empty()) {
    return connection.Call(CallKind::kWrite, &v1::JobService::Stub::CreateJob, request);
  }
  PendingRequest pending(session.environment(), absl::StrCat(connection.options().address, " ",
                                                             request.ShortDebugString()));
  request.set_request_id(pending.id());
  absl::StatusOr<v1::Job> job =
      connection.Call(CallKind::kWrite, &v1::JobService::Stub::CreateJob, request);
  if (IsAnswer(job.status())) {
    pending.Answered();
  }
  return job;
}

std::string Position(const v1::Job& job) {
  return job.queue_position() == 0 ? "next" : absl::StrCat(job.queue_position(), " before it");
}

void PrintSubmitted(Session& session, const v1::Job& job, const SubmitFlags& flags) {
  if (session.wants_names() && !flags.dry_run) {
    session.out() << job.name() << std::endl;
    return;
  }
  const bool job_follows = flags.follow || flags.wait;  // which prints the job when it has ended
  if (session.wants_json() && !job_follows) {
    session.PrintJson(job);
  }
  if (!session.wants_table()) {
    return;
  }
  if (!flags.dry_run) {
    session.out() << "job:     " << job.name() << "\n"
                  << "queue:   " << Position(job) << "\n";
  }
  for (const std::string& line : PlanLines(job.plan())) {
    session.out() << line << "\n";
  }
  session.out().flush();
}

void PrintNext(Session& session, const v1::Job& job) {
  const std::string id = ShortName(job.name());
  session.err() << "Next:\n"
                << "  " << session.Command(absl::StrCat("watch ", id)) << "\n"
                << "  " << session.Command(absl::StrCat("logs -f ", id)) << "\n"
                << "  " << session.Command(absl::StrCat("cancel ", id)) << std::endl;
}

absl::StatusOr<ExitCode> Submit(Session& session, const SubmitFlags& flags) {
  MT_ASSIGN_OR_RETURN(const v1::CreateJobRequest request, ReadJobFile(flags.file, flags.settings));
  MT_ASSIGN_OR_RETURN(const v1::Job job, Create(session, request, flags));
  PrintSubmitted(session, job, flags);
  if (flags.dry_run) {
    return ExitCode::kOk;
  }
  if (flags.follow || flags.wait) {
    return FollowToTheEnd(session, job.name(),
                          flags.follow ? FollowStyle::kProgress : FollowStyle::kSilent);
  }
  PrintNext(session, job);
  return ExitCode::kOk;
}

}  // namespace

void AddSubmit(CLI::App& app, Verb& chosen) {
  auto flags = std::make_shared<SubmitFlags>();
  CLI::App* verb = app.add_subcommand("submit", "Submits a job");
  verb->add_option("FILE", flags->file, "The job file, in YAML")->required();
  verb->add_option("--set", flags->settings, "Lays key=value over the file: train.steps=10")
      ->allow_extra_args(false);
  CLI::Option* follow = verb->add_flag("--follow", flags->follow, "Shows progress until the end");
  CLI::Option* wait = verb->add_flag("--wait", flags->wait, "Waits for the end in silence");
  CLI::Option* detach = verb->add_flag("--detach", flags->detach, "Returns at once (default)");
  follow->excludes(wait)->excludes(detach);
  wait->excludes(detach);
  verb->add_flag("--dry-run", flags->dry_run, "Checks and plans, submits nothing");
  verb->add_option("--request-id", flags->request_id,
                   "UUID: a repeat with the same one is the same job");
  verb->footer("Example: megatrain submit job.yaml --set train.steps=10 --follow");
  verb->callback(
      [flags, &chosen] { chosen = [flags](Session& session) { return Submit(session, *flags); }; });
}

}  // namespace megatrain
