// A job as the server keeps it.

#ifndef SERVER_JOBS_JOB_RECORD_H_
#define SERVER_JOBS_JOB_RECORD_H_

#include <cstdint>
#include <string>

#include "megatrain/v1/job.pb.h"

namespace megatrain {

// A job with what clients do not see.
struct JobRecord {
  // As clients get it, but for queue_position. The store sets etag.
  v1::Job job;
  // Place in the order of acceptance, from 1; the store's.
  int64_t acceptance = 0;
  // A user wishes its end.
  bool cancel_wished = false;
  // Of its newest event; 0 before the first.
  int64_t last_sequence = 0;
};

// The job will never change again.
inline bool IsFinal(v1::JobState state) {
  return state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED ||
         state == v1::JOB_STATE_CANCELLED;
}

// "addition" of "jobs/addition".
inline std::string JobIdOf(const v1::Job& job) { return job.name().substr(sizeof("jobs/") - 1); }

}  // namespace megatrain

#endif  // SERVER_JOBS_JOB_RECORD_H_
