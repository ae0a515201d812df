#include "client/cli/new_job.h"

#include <ostream>

#include "client/cli/follow_output.h"
#include "client/cli/plan_text.h"
#include "client/cli/text.h"

namespace megatrain {
namespace {

std::string Position(const v1::Job& job) {
  return job.queue_position() == 0 ? "next" : absl::StrCat(job.queue_position(), " before it");
}

void PrintNewJob(Session& session, const v1::Job& job, const NewJobFlags& flags) {
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

}  // namespace

void AddNewJobFlags(CLI::App& verb, NewJobFlags& flags) {
  CLI::Option* follow = verb.add_flag("--follow", flags.follow, "Shows progress until the end");
  CLI::Option* wait = verb.add_flag("--wait", flags.wait, "Waits for the end in silence");
  CLI::Option* detach = verb.add_flag("--detach", flags.detach, "Returns at once (default)");
  follow->excludes(wait)->excludes(detach);
  wait->excludes(detach);
  verb.add_flag("--dry-run", flags.dry_run, "Checks and plans, makes no job");
  verb.add_option("--request-id", flags.request_id,
                  "UUID: a repeat with the same one is the same job");
}

absl::StatusOr<ExitCode> ReportNewJob(Session& session, const v1::Job& job,
                                      const NewJobFlags& flags) {
  PrintNewJob(session, job, flags);
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

bool IsAnswer(const absl::Status& status) {
  return status.code() != absl::StatusCode::kUnavailable &&
         status.code() != absl::StatusCode::kDeadlineExceeded &&
         status.code() != absl::StatusCode::kCancelled;
}

}  // namespace megatrain
