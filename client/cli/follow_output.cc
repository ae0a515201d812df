#include "client/cli/follow_output.h"

#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/checkpoint_name.h"
#include "client/cli/interrupt_scope.h"
#include "client/cli/job_news.h"
#include "client/cli/job_output.h"
#include "client/cli/progress_view.h"
#include "client/cli/text.h"
#include "client/lib/error_text.h"
#include "client/lib/follow.h"

namespace megatrain {
namespace {

constexpr absl::Duration kRedrawInterval = absl::Milliseconds(250);
constexpr absl::Duration kLineInterval = absl::Seconds(30);
constexpr absl::Duration kStepCountInterval = absl::Seconds(1);

class ProgressPrinter final : public FollowSink {
 public:
  ProgressPrinter(Session& session, const std::string& name, FollowStyle style)
      : session_(session), name_(name), style_(style), news_(CommandsOf(session)) {}

  void OnEvent(const v1::JobEvent& event) override {
    if (style_ == FollowStyle::kEvents && session_.wants_json()) {
      session_.PrintJson(event, /*on_one_line=*/true);
    }
    for (const std::string& line : news_.Of(event)) {
      Note(line);
    }
    const v1::JobState state_before = view_.state();
    if (event.has_snapshot()) {
      view_.SetJob(event.snapshot());
    } else if (event.has_final()) {
      view_.SetJob(event.final());
    } else if (event.has_state_change()) {
      view_.ChangeState(event.state_change());
    } else if (event.has_step()) {
      view_.AddStep(event.step());
      LearnStepCount();
    } else if (event.has_evaluation()) {
      view_.AddEvaluation(event.evaluation());
    }
    const bool is_news = view_.state() != state_before || event.step().step() == 1;
    Draw(/*must=*/is_news && !event.has_final());
  }

  void OnLost(const absl::Status& why) override {
    Note(absl::StrCat("connection lost (", DescribeError(why).what, "), trying again"));
  }

  void OnReconnected(int caught_up_count) override {
    Note(absl::StrCat("reconnected, ", caught_up_count, " events caught up"));
  }

  void OnTick() override { Draw(/*must=*/false); }

  // Before anything else is written.
  void Clear() {
    if (bar_shown_) {
      session_.err() << "\r\x1b[K";
      bar_shown_ = false;
    }
  }

 private:
  // Events carry no count of steps; it becomes known when the job leaves PREPARING.
  void LearnStepCount() {
    const absl::Duration now = session_.environment().clock.MonotonicNow();
    if (!view_.lacks_step_count() || now - last_ask_ < kStepCountInterval) {
      return;
    }
    last_ask_ = now;
    v1::GetJobRequest request;
    request.set_name(name_);
    const absl::StatusOr<v1::Job> job =
        session_.connection().Call(CallKind::kRead, &v1::JobService::Stub::GetJob, request);
    if (job.ok() && !IsFinal(job->state())) {
      view_.SetJob(*job);
    }
  }

  void Draw(bool must) {
    if (style_ == FollowStyle::kSilent) {
      return;
    }
    const Environment& environment = session_.environment();
    const absl::Duration now = environment.clock.MonotonicNow();
    const bool on_terminal = environment.err_is_terminal;
    const absl::Duration interval = on_terminal ? kRedrawInterval : kLineInterval;
    if (!must && now - last_drawn_ < interval) {
      return;
    }
    const std::string line =
        on_terminal ? view_.Bar(environment.width - 1, environment.unicode) : view_.Words();
    if (line == last_line_) {
      return;
    }
    last_drawn_ = now;
    last_line_ = line;
    if (on_terminal) {
      session_.err() << "\r\x1b[K" << line << std::flush;
      bar_shown_ = true;
    } else {
      session_.err() << line << std::endl;
    }
  }

  void Note(const std::string& text) {
    if (style_ == FollowStyle::kSilent) {
      return;
    }
    Clear();
    const bool color = UsesColor(session_.environment(), session_.options());
    session_.err() << (color ? "\x1b[90m" : "") << Printable(text) << (color ? "\x1b[0m" : "")
                   << std::endl;
    last_line_.clear();
  }

  Session& session_;
  const std::string name_;
  const FollowStyle style_;
  JobNews news_;
  ProgressView view_;
  absl::Duration last_drawn_ = -absl::InfiniteDuration();
  absl::Duration last_ask_ = -absl::InfiniteDuration();
  std::string last_line_;
  bool bar_shown_ = false;
};

absl::Duration TimeOf(const v1::Job& job) {
  return absl::Seconds(job.end_time().seconds() - job.start_time().seconds()) +
         absl::Nanoseconds(job.end_time().nanos() - job.start_time().nanos());
}

// What evaluations have to say at the end; empty without any.
std::string BestText(const v1::Job& job) {
  if (!job.has_best_evaluation()) {
    return "";
  }
  const std::string checkpoint = ShortCheckpointName(job.best_checkpoint());
  return absl::StrFormat("%sbest validation loss %.4f after step %d%s\n",
                         job.stopped_early() ? "stopped early: " : "", job.best_evaluation().loss(),
                         job.best_evaluation().step(),
                         checkpoint.empty() ? "" : absl::StrCat(", saved as ", checkpoint));
}

}  // namespace

ExitCode ReportDetached(Session& session, const std::string& name) {
  const std::string id = ShortName(name);
  session.err() << "detached: " << name << " goes on\n"
                << "  come back:  " << session.Command(absl::StrCat("watch ", id)) << "\n"
                << "  its log:    " << session.Command(absl::StrCat("logs -f ", id)) << "\n"
                << "  stop it:    " << session.Command(absl::StrCat("cancel ", id)) << std::endl;
  return ExitCode::kInterrupted;
}

ExitCode ReportEnd(Session& session, const v1::Job& job) {
  if (job.state() == v1::JOB_STATE_SUCCEEDED) {
    session.err() << absl::StrFormat("%s SUCCEEDED: %s after %d steps, loss %.4f, %s\n", job.name(),
                                     job.output_version(), job.last_step().step(),
                                     job.last_step().loss(), FormatSpan(TimeOf(job)));
    session.err() << BestText(job) << std::flush;
  } else {
    absl::Status error = absl::UnknownError(absl::StrCat(job.name(), " ", StateName(job.state()),
                                                         job.reason().message().empty() ? "" : ": ",
                                                         job.reason().message()));
    if (!job.reason().code().empty()) {
      error = WithClientReason(std::move(error), job.reason().code());
    }
    const std::string logs = session.Command(absl::StrCat("logs ", ShortName(job.name())));
    PrintError(session.environment(), session.options(), WithHint(std::move(error), logs));
    PrintAdvice(session, job);
  }
  return ExitCodeOf(job.state());
}

absl::StatusOr<ExitCode> FollowToTheEnd(Session& session, const std::string& name,
                                        FollowStyle style) {
  const InterruptScope scope(session.environment().interruption);
  ProgressPrinter printer(session, name, style);
  const absl::StatusOr<v1::Job> job = FollowJob(session.connection(), name, printer);
  printer.Clear();
  if (session.environment().interruption.triggered()) {
    return ReportDetached(session, name);
  }
  if (!job.ok()) {
    return job.status();
  }
  if (session.wants_json() && style != FollowStyle::kEvents) {
    session.PrintJson(*job);
  }
  return ReportEnd(session, *job);
}

}  // namespace megatrain
