#include "server/jobs/scheduling_policy.h"

#include <algorithm>

#include "server/jobs/job_wish.h"

namespace megatrain {
namespace {

bool Waits(const JobRecord& record) {
  return record.job.state() == v1::JOB_STATE_QUEUED && !IsTrained(record.job) &&
         !record.wishes.cancel && !record.wishes.pause;
}

bool GoesBefore(const JobRecord& a, const JobRecord& b) {
  const int32_t priority_a = a.job.spec().priority();
  const int32_t priority_b = b.job.spec().priority();
  return priority_a != priority_b ? priority_a > priority_b : a.acceptance < b.acceptance;
}

}  // namespace

int NextJob(const std::vector<JobRecord>& jobs,
            const std::function<bool(const JobRecord&)>& is_postponed) {
  int next = -1;
  for (int i = 0; i < static_cast<int>(jobs.size()); ++i) {
    if (Waits(jobs[i]) && !is_postponed(jobs[i]) && (next < 0 || GoesBefore(jobs[i], jobs[next]))) {
      next = i;
    }
  }
  return next;
}

int JobsBefore(const std::vector<JobRecord>& jobs, const v1::Job& job) {
  return static_cast<int>(std::count_if(jobs.begin(), jobs.end(), [&job](const JobRecord& record) {
    return Waits(record) && record.job.spec().priority() >= job.spec().priority();
  }));
}

int QueuePosition(const std::vector<JobRecord>& jobs, const std::string& name) {
  const JobRecord* self = nullptr;
  for (const JobRecord& record : jobs) {
    self = record.job.name() == name && Waits(record) ? &record : self;
  }
  int position = 0;
  for (const JobRecord& record : jobs) {
    position += self != nullptr && Waits(record) && GoesBefore(record, *self) ? 1 : 0;
  }
  return position;
}

}  // namespace megatrain
