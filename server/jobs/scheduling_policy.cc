#include "server/jobs/scheduling_policy.h"

#include <algorithm>

namespace megatrain {
namespace {

bool Waits(const JobRecord& record) {
  return record.job.state() == v1::JOB_STATE_QUEUED && !record.wishes.cancel &&
         !record.wishes.pause;
}

}  // namespace

int NextJob(const std::vector<JobRecord>& jobs) {
  int next = -1;
  for (int i = 0; i < static_cast<int>(jobs.size()); ++i) {
    if (Waits(jobs[i]) && (next < 0 || jobs[i].acceptance < jobs[next].acceptance)) {
      next = i;
    }
  }
  return next;
}

int WaitingJobs(const std::vector<JobRecord>& jobs) {
  return static_cast<int>(std::count_if(jobs.begin(), jobs.end(), Waits));
}

int QueuePosition(const std::vector<JobRecord>& jobs, const std::string& name) {
  const JobRecord* self = nullptr;
  for (const JobRecord& record : jobs) {
    self = record.job.name() == name && Waits(record) ? &record : self;
  }
  int position = 0;
  for (const JobRecord& record : jobs) {
    position += self != nullptr && Waits(record) && record.acceptance < self->acceptance ? 1 : 0;
  }
  return position;
}

}  // namespace megatrain
