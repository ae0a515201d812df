// A job as the server keeps it.

#ifndef SERVER_JOBS_JOB_RECORD_H_
#define SERVER_JOBS_JOB_RECORD_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/strings/numbers.h"
#include "megatrain/v1/job.pb.h"

namespace megatrain {

// What users wish of a job: recorded by the handlers of their calls, acted on by the controller,
// which never changes it. So a wish cannot be lost between the two.
struct JobWishes {
  bool cancel = false;
  // It is to be paused or held as long as this stands.
  bool pause = false;
  // Saves asked for so far.
  int64_t save_count = 0;
  // Times that it was asked to go on; one more ends its wait to be tried again.
  int64_t resume_count = 0;
  // The checkpoint to go on from; holds until there is one with a number above
  // `start_after_number`. Empty: the newest.
  std::string start_checkpoint;
  int64_t start_after_number = 0;
};

// A job with what clients do not see.
struct JobRecord {
  // As clients get it, but for queue_position. The store sets etag.
  v1::Job job;
  // Place in the order of acceptance, from 1; the store's.
  int64_t acceptance = 0;
  JobWishes wishes;
  // Of `wishes.save_count`, those that a checkpoint, or the news that it failed, came after; the
  // controller's.
  int64_t saves_answered = 0;
  // Times that the job was put back by a crash since its newest checkpoint; the controller's.
  int32_t crash_count = 0;
  // Of its newest event; 0 before the first.
  int64_t last_sequence = 0;
};

// The job will never change again.
inline bool IsFinal(v1::JobState state) {
  return state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED ||
         state == v1::JOB_STATE_CANCELLED;
}

// "QUEUED" of JOB_STATE_QUEUED.
inline std::string StateWord(v1::JobState state) {
  return v1::JobState_Name(state).substr(sizeof("JOB_STATE_") - 1);
}

// "addition" of "jobs/addition".
inline std::string JobIdOf(const std::string& job_name) {
  return job_name.substr(sizeof("jobs/") - 1);
}
inline std::string JobIdOf(const v1::Job& job) { return JobIdOf(job.name()); }

// "jobs/a" of "jobs/a/checkpoints/step-00000120".
inline std::string JobOfCheckpoint(const std::string& name) {
  return name.substr(0, name.find("/checkpoints/"));
}

// 120 of "jobs/a/checkpoints/step-00000120"; 0 for what is no name of a checkpoint.
inline int64_t StepOfCheckpoint(const std::string& name) {
  constexpr std::string_view kPrefix = "/checkpoints/step-";
  const size_t at = name.find(kPrefix);
  int64_t step = 0;
  return at != std::string::npos && absl::SimpleAtoi(name.substr(at + kPrefix.size()), &step) ? step
                                                                                              : 0;
}

}  // namespace megatrain

#endif  // SERVER_JOBS_JOB_RECORD_H_
