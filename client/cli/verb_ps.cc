#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/job_output.h"
#include "client/cli/text.h"
#include "client/cli/verbs.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

constexpr int kPageSize = 1000;

// "step-00000120" of "jobs/a/checkpoints/step-00000120".
std::string IdOf(const std::string& checkpoint) {
  return checkpoint.substr(checkpoint.rfind('/') + 1);
}

// Of one that waits, also what for.
std::string StateAndWait(const v1::Job& job) {
  const bool waits = job.state() == v1::JOB_STATE_QUEUED && !job.reason().code().empty();
  return absl::StrCat(StateWords(job), waits ? ", " : "", waits ? job.reason().code() : "");
}

std::vector<std::string> Row(const v1::Job& job, absl::Time now) {
  const int64_t step = job.last_step().step();
  return {
      job.name(),
      StateAndWait(job),
      step == 0 ? "" : absl::StrCat(step, "/", job.planned_step_count()),
      step == 0 ? "" : absl::StrFormat("%.4f", job.last_step().loss()),
      job.has_last_evaluation() ? absl::StrFormat("%.4f", job.last_evaluation().loss()) : "",
      IdOf(job.last_checkpoint()),
      job.spec().model(),
      FormatAge(job.create_time(), now),
      job.display_name(),
  };
}

// A job that holds needs somebody.
void PrintHolding(Session& session, const v1::ListJobsResponse& jobs) {
  for (const v1::Job& job : jobs.jobs()) {
    if (IsHolding(job)) {
      PrintAdvice(session, job);
    }
  }
}

absl::StatusOr<ExitCode> ListJobs(Session& session, bool all) {
  v1::ListJobsRequest request;
  request.set_page_size(kPageSize);
  for (int state = v1::JobState_MIN; !all && state <= v1::JobState_MAX; ++state) {
    if (state != v1::JOB_STATE_UNSPECIFIED && !IsFinal(static_cast<v1::JobState>(state))) {
      request.add_states(static_cast<v1::JobState>(state));
    }
  }
  v1::ListJobsResponse jobs;
  do {
    MT_ASSIGN_OR_RETURN(
        const v1::ListJobsResponse page,
        session.connection().Call(CallKind::kRead, &v1::JobService::Stub::ListJobs, request));
    jobs.mutable_jobs()->MergeFrom(page.jobs());
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  if (session.wants_json()) {
    session.PrintJson(jobs);
    return ExitCode::kOk;
  }
  std::vector<std::vector<std::string>> rows;
  for (const v1::Job& job : jobs.jobs()) {
    if (session.wants_names()) {
      session.out() << job.name() << "\n";
    }
    rows.push_back(Row(job, session.environment().clock.WallNow()));
  }
  if (session.wants_table()) {
    session.PrintTable({"JOB", "STATE", "STEP", "LOSS", "EVAL", "SAVED", "MODEL", "AGE", "TITLE"},
                       rows);
    PrintHolding(session, jobs);
  }
  return ExitCode::kOk;
}

}  // namespace

void AddPs(CLI::App& app, Verb& chosen) {
  auto all = std::make_shared<bool>(false);
  CLI::App* verb = app.add_subcommand("ps", "Lists jobs that wait or run");
  verb->add_flag("-a,--all", *all, "Finished ones too");
  verb->callback(
      [all, &chosen] { chosen = [all](Session& session) { return ListJobs(session, *all); }; });
}

}  // namespace megatrain
