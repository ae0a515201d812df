// Which waiting job runs next. Pure.

#ifndef SERVER_JOBS_SCHEDULING_POLICY_H_
#define SERVER_JOBS_SCHEDULING_POLICY_H_

#include <functional>
#include <string>
#include <vector>

#include "server/jobs/job_record.h"

namespace megatrain {

// The index in `jobs` of the one to run next, -1 when none waits: the highest priority first, and
// of equal ones first come, first served. One that is postponed or trained does not wait.
int NextJob(const std::vector<JobRecord>& jobs,
            const std::function<bool(const JobRecord&)>& is_postponed);

// Waiting jobs of `jobs` that run before `job`, which is accepted now.
int JobsBefore(const std::vector<JobRecord>& jobs, const v1::Job& job);

// Waiting jobs of `jobs` that run before the waiting job `name`; 0 for any other.
int QueuePosition(const std::vector<JobRecord>& jobs, const std::string& name);

}  // namespace megatrain

#endif  // SERVER_JOBS_SCHEDULING_POLICY_H_
