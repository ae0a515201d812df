#include "server/checkpoints/checkpoint_figures.h"

#include "server/resources/timestamp.h"

namespace megatrain {
namespace {

v1::EvaluationRecord EvaluationOf(const LogEntry& entry, absl::Time time) {
  v1::EvaluationRecord record;
  record.set_step(entry.step);
  record.set_loss(entry.loss);
  record.set_loss_token_count(entry.loss_token_count);
  *record.mutable_end_time() = TimestampOf(time);
  return record;
}

v1::StepRecord StepOf(const LogEntry& entry, absl::Time time) {
  v1::StepRecord record;
  record.set_step(entry.step);
  record.set_loss(entry.loss);
  record.set_gradient_norm(entry.gradient_norm);
  record.set_learning_rate(entry.learning_rate);
  record.set_token_count(entry.token_count);
  record.set_loss_token_count(entry.loss_token_count);
  record.set_skipped(entry.kind == LogEntry::Kind::kSkippedStep);
  *record.mutable_end_time() = TimestampOf(time);
  return record;
}

}  // namespace

std::vector<v1::JobEvent> EventsOfLog(const TrainingLog& log, absl::Time create_time) {
  std::vector<v1::JobEvent> events;
  for (const LogEntry& entry : log) {
    v1::JobEvent& event = events.emplace_back();
    *event.mutable_event_time() = TimestampOf(create_time);
    if (entry.kind == LogEntry::Kind::kEvaluation) {
      *event.mutable_evaluation() = EvaluationOf(entry, create_time);
    } else {
      *event.mutable_step() = StepOf(entry, create_time);
    }
  }
  return events;
}

}  // namespace megatrain
