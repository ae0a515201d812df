#ifndef CLIENT_CLI_PROGRESS_VIEW_H_
#define CLIENT_CLI_PROGRESS_VIEW_H_

#include <cstdint>
#include <deque>
#include <string>

#include "absl/time/time.h"
#include "megatrain/v1/job.pb.h"
#include "megatrain/v1/job_service.pb.h"

namespace megatrain {

// A followed job as one line of text. Made of its events alone; draws nothing by itself.
class ProgressView {
 public:
  // The job as it is, of a snapshot, a final event or a GetJob.
  void SetJob(const v1::Job& job);

  void AddStep(const v1::StepRecord& step);
  void AddEvaluation(const v1::EvaluationRecord& evaluation);
  void ChangeState(const v1::StateChange& change);

  v1::JobState state() const { return state_; }
  // Steps are coming in, but their number was not known when the job was last seen.
  bool lacks_step_count() const { return planned_step_count_ == 0 && last_step_.step() > 0; }

  // A bar with step, loss, tokens/s, ETA and a sparkline of the loss, in at most `width` columns.
  std::string Bar(int width, bool unicode) const;

  // The same in words, for a log: "step 45/120, loss 0.3512, validation 0.4021, 1234 tokens/s,
  // 1 min 52 s left".
  std::string Words() const;

 private:
  double TokensPerSecond() const;
  absl::Duration TimeLeft() const;  // zero when it is not known
  std::string StateText() const;
  std::string StepText() const;

  v1::JobState state_ = v1::JOB_STATE_UNSPECIFIED;
  std::string phase_;
  v1::JobReason reason_;
  int attempt_ = 0;
  int queue_position_ = 0;
  int64_t planned_step_count_ = 0;
  v1::StepRecord last_step_;
  v1::EvaluationRecord evaluation_;    // the last one; of step 0 before the first
  std::deque<double> losses_;          // of the last steps, for the sparkline
  std::deque<v1::StepRecord> recent_;  // of the last steps, for speeds
};

}  // namespace megatrain

#endif  // CLIENT_CLI_PROGRESS_VIEW_H_
