// Which waiting job runs next. Pure: what it says follows from stored fields alone.

#ifndef SERVER_JOBS_SCHEDULING_POLICY_H_
#define SERVER_JOBS_SCHEDULING_POLICY_H_

#include <string>
#include <vector>

#include "server/jobs/job_record.h"

namespace megatrain {

// The index in `jobs` of the one to run next, -1 when none waits: first come, first served.
int NextJob(const std::vector<JobRecord>& jobs);

// How many of `jobs` wait: the queue position of one that is accepted now.
int WaitingJobs(const std::vector<JobRecord>& jobs);

// Waiting jobs of `jobs` that run before the waiting job `name`; 0 for any other.
int QueuePosition(const std::vector<JobRecord>& jobs, const std::string& name);

}  // namespace megatrain

#endif  // SERVER_JOBS_SCHEDULING_POLICY_H_
