#ifndef CLIENT_CLI_JOB_NEWS_H_
#define CLIENT_CLI_JOB_NEWS_H_

#include <string>
#include <utility>
#include <vector>

#include "client/cli/job_text.h"
#include "google/protobuf/timestamp.pb.h"
#include "megatrain/v1/job.pb.h"
#include "megatrain/v1/job_service.pb.h"

namespace megatrain {

// What of a followed job's events deserves lines of its own: checkpoints, evaluations, pauses, and
// a job that holds. Makes text; prints nothing.
class JobNews {
 public:
  explicit JobNews(CommandText command) : command_(std::move(command)) {}

  // The lines about the next event of the stream; none for one that only changes figures, and for
  // what happened before the job was first seen.
  std::vector<std::string> Of(const v1::JobEvent& event);

 private:
  std::vector<std::string> OfSnapshot(const v1::Job& job);
  std::vector<std::string> OfChange(const v1::StateChange& change);
  std::vector<std::string> OfStep(const v1::StepRecord& step);
  std::vector<std::string> OfEvaluation(const v1::EvaluationRecord& evaluation);
  std::vector<std::string> OfFailure(const v1::CheckpointFailure& failure);

  const CommandText command_;
  v1::Job job_;                             // as the events tell it
  google::protobuf::Timestamp first_seen_;  // on the server's clock
  bool seen_ = false;
  bool stood_still_ = false;  // it did not run when it was last heard of
};

}  // namespace megatrain

#endif  // CLIENT_CLI_JOB_NEWS_H_
