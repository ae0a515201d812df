#include "client/cli/progress_view.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/text.h"

namespace megatrain {
namespace {

constexpr size_t kSparklinePoints = 60;
constexpr size_t kSpeedSteps = 20;  // long enough to be calm, short enough to follow a change
constexpr int kBarColumns = 20;

std::string BarText(double part, bool unicode) {
  const int full = static_cast<int>(std::clamp(part, 0.0, 1.0) * kBarColumns);
  std::string bar = "[";
  for (int i = 0; i < kBarColumns; ++i) {
    bar += i < full ? (unicode ? "█" : "#") : (unicode ? "░" : ".");
  }
  return bar + "]";
}

}  // namespace

void ProgressView::SetJob(const v1::Job& job) {
  state_ = job.state();
  phase_ = job.phase();
  reason_ = job.reason();
  attempt_ = job.attempt();
  queue_position_ = job.queue_position();
  planned_step_count_ = job.planned_step_count();
  if (job.last_evaluation().step() >= evaluation_.step()) {
    evaluation_ = job.last_evaluation();
  }
  if (job.last_step().step() > last_step_.step()) {
    last_step_ = job.last_step();
  }
}

void ProgressView::AddStep(const v1::StepRecord& step) {
  last_step_ = step;
  if (!step.skipped()) {
    losses_.push_back(step.loss());
  }
  if (step.step_seconds() > 0) {  // else nobody knows how long it took
    recent_.push_back(step);
  }
  if (losses_.size() > kSparklinePoints) {
    losses_.pop_front();
  }
  if (recent_.size() > kSpeedSteps) {
    recent_.pop_front();
  }
}

void ProgressView::AddEvaluation(const v1::EvaluationRecord& evaluation) {
  evaluation_ = evaluation;
}

void ProgressView::ChangeState(const v1::StateChange& change) {
  if (change.attempt() > attempt_) {  // from its start again
    last_step_.Clear();
    evaluation_.Clear();
    losses_.clear();
    recent_.clear();
  }
  state_ = change.state();
  phase_ = change.phase();
  reason_ = change.reason();
  attempt_ = change.attempt();
}

double ProgressView::TokensPerSecond() const {
  double seconds = 0;
  double tokens = 0;
  for (const v1::StepRecord& step : recent_) {
    seconds += step.step_seconds();
    tokens += static_cast<double>(step.token_count());
  }
  return seconds > 0 ? tokens / seconds : 0;
}

absl::Duration ProgressView::TimeLeft() const {
  double seconds = 0;
  for (const v1::StepRecord& step : recent_) {
    seconds += step.step_seconds();
  }
  const int64_t steps_left = std::max<int64_t>(0, planned_step_count_ - last_step_.step());
  return recent_.empty() ? absl::ZeroDuration()
                         : absl::Seconds(seconds / static_cast<double>(recent_.size()) *
                                         static_cast<double>(steps_left));
}

std::string ProgressView::StateText() const {
  std::string words = StateName(state_);
  if (state_ == v1::JOB_STATE_QUEUED && queue_position_ > 0) {
    absl::StrAppend(&words, ", ", queue_position_, " before it");
  }
  if (!phase_.empty() && !IsFinal(state_)) {
    absl::StrAppend(&words, ", ", phase_);
  }
  if (attempt_ > 1) {
    absl::StrAppend(&words, ", attempt ", attempt_);
  }
  if (!reason_.message().empty()) {
    absl::StrAppend(&words, ": ", Printable(reason_.message()));
  }
  return words;
}

std::string ProgressView::StepText() const {
  std::string words = absl::StrCat("step ", last_step_.step());
  if (planned_step_count_ > 0) {
    absl::StrAppend(&words, "/", planned_step_count_);
  }
  absl::StrAppend(&words, last_step_.skipped() ? std::string(", skipped: not finite")
                                               : absl::StrFormat(", loss %.4f", last_step_.loss()));
  if (evaluation_.step() > 0) {
    absl::StrAppendFormat(&words, ", validation %.4f", evaluation_.loss());
  }
  return words;
}

std::string ProgressView::Words() const {
  if (state_ != v1::JOB_STATE_RUNNING || last_step_.step() == 0) {
    return StateText();
  }
  std::string words = StepText();
  if (!phase_.empty() && phase_ != "training") {
    return absl::StrCat(words, ", ", phase_);
  }
  if (const double speed = TokensPerSecond(); speed > 0) {
    absl::StrAppendFormat(&words, ", %.0f tokens/s", speed);
  }
  if (planned_step_count_ > last_step_.step() && !recent_.empty()) {
    absl::StrAppend(&words, ", ", FormatSpan(TimeLeft()), " left");
  }
  return words;
}

std::string ProgressView::Bar(int width, bool unicode) const {
  if (state_ != v1::JOB_STATE_RUNNING || last_step_.step() == 0 || planned_step_count_ == 0) {
    return Words();
  }
  const double part =
      static_cast<double>(last_step_.step()) / static_cast<double>(planned_step_count_);
  std::string line = absl::StrCat(BarText(part, unicode), " ", Words());
  const int room = width - ColumnsOf(line) - 2;
  if (unicode && room > 3 && losses_.size() > 1) {
    const size_t points = std::min(losses_.size(), static_cast<size_t>(room));
    absl::StrAppend(&line, "  ",
                    Sparkline({losses_.end() - static_cast<ptrdiff_t>(points), losses_.end()}));
  }
  return room < -2 ? Words() : line;
}

}  // namespace megatrain
