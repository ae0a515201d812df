#include "server/jobs/scheduling_policy.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace megatrain {
namespace {

JobRecord Job(int64_t acceptance, v1::JobState state = v1::JOB_STATE_QUEUED) {
  JobRecord record;
  record.acceptance = acceptance;
  record.job.set_name("jobs/a" + std::to_string(acceptance));
  record.job.set_state(state);
  return record;
}

TEST(SchedulingPolicyTest, FirstComeFirstServedWhateverTheOrderGiven) {
  std::vector<JobRecord> jobs = {Job(1, v1::JOB_STATE_RUNNING), Job(2), Job(3), Job(4)};
  std::mt19937 random(7);
  for (int i = 0; i < 20; ++i) {
    std::shuffle(jobs.begin(), jobs.end(), random);
    ASSERT_GE(NextJob(jobs), 0);
    EXPECT_EQ(jobs[NextJob(jobs)].acceptance, 2);
    EXPECT_EQ(QueuePosition(jobs, "jobs/a1"), 0);
    EXPECT_EQ(QueuePosition(jobs, "jobs/a2"), 0);
    EXPECT_EQ(QueuePosition(jobs, "jobs/a4"), 2);
    EXPECT_EQ(WaitingJobs(jobs), 3);
  }
}

TEST(SchedulingPolicyTest, NobodyWaits) {
  JobRecord wished = Job(1);
  wished.wishes.cancel = true;
  EXPECT_EQ(NextJob({}), -1);
  EXPECT_EQ(NextJob({wished, Job(2, v1::JOB_STATE_CANCELLING)}), -1);
  EXPECT_EQ(QueuePosition({wished, Job(3)}, "jobs/a3"), 0);
}

}  // namespace
}  // namespace megatrain
