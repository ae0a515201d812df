#include "client/cli/job_news.h"

#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/checkpoint_name.h"
#include "client/cli/text.h"

namespace megatrain {
namespace {

bool IsBefore(const google::protobuf::Timestamp& a, const google::protobuf::Timestamp& b) {
  return std::make_tuple(a.seconds(), a.nanos()) < std::make_tuple(b.seconds(), b.nanos());
}

}  // namespace

std::vector<std::string> JobNews::Of(const v1::JobEvent& event) {
  std::vector<std::string> lines;
  if (event.has_snapshot()) {
    return OfSnapshot(event.snapshot());
  }
  if (event.has_step()) {
    lines = OfStep(event.step());
  } else if (event.has_state_change()) {
    lines = OfChange(event.state_change());
  } else if (event.has_evaluation()) {
    lines = OfEvaluation(event.evaluation());
  } else if (event.has_checkpoint_failure()) {
    lines = OfFailure(event.checkpoint_failure());
  } else if (event.has_checkpoint()) {
    job_.set_last_checkpoint(event.checkpoint().name());
    lines = {absl::StrCat("saved ", ShortCheckpointName(event.checkpoint().name()), ", ",
                          FormatBytes(event.checkpoint().size_bytes()))};
  }
  return IsBefore(event.event_time(), first_seen_) ? std::vector<std::string>() : lines;
}

std::vector<std::string> JobNews::OfSnapshot(const v1::Job& job) {
  job_ = job;
  if (std::exchange(seen_, true)) {
    return {};  // of a new stream; what was missed follows
  }
  first_seen_ = job.update_time();
  return IsFinal(job.state()) ? std::vector<std::string>() : Advice(job, command_);
}

std::vector<std::string> JobNews::OfChange(const v1::StateChange& change) {
  const bool was_known = IsHolding(job_) || job_.state() == v1::JOB_STATE_PAUSED;
  job_.set_state(change.state());
  job_.set_phase(change.phase());
  *job_.mutable_reason() = change.reason();
  job_.set_held(false);  // events do not tell; the next snapshot does
  stood_still_ = stood_still_ || change.state() != v1::JOB_STATE_RUNNING;
  return was_known || IsFinal(change.state()) ? std::vector<std::string>() : Advice(job_, command_);
}

std::vector<std::string> JobNews::OfStep(const v1::StepRecord& step) {
  *job_.mutable_last_step() = step;
  if (!std::exchange(stood_still_, false) || step.step() == 1) {
    return {};
  }
  return {absl::StrCat("goes on after step ", step.step() - 1)};
}

std::vector<std::string> JobNews::OfEvaluation(const v1::EvaluationRecord& evaluation) {
  const v1::EvaluationRecord before = job_.best_evaluation();
  const bool is_best = !job_.has_best_evaluation() || evaluation.loss() < before.loss();
  *job_.mutable_last_evaluation() = evaluation;
  if (is_best) {
    *job_.mutable_best_evaluation() = evaluation;
  }
  const std::string comparison =
      is_best ? "the best so far"
              : absl::StrFormat("best %.4f after step %d", before.loss(), before.step());
  return {absl::StrFormat("validation loss %.4f after step %d, %s", evaluation.loss(),
                          evaluation.step(), comparison)};
}

std::vector<std::string> JobNews::OfFailure(const v1::CheckpointFailure& failure) {
  job_.set_phase("holding");
  *job_.mutable_reason() = failure.reason();
  return Advice(job_, command_);
}

}  // namespace megatrain
