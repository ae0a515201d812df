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

bool Never(const JobRecord&) { return false; }

TEST(SchedulingPolicyTest, FirstComeFirstServedWhateverTheOrderGiven) {
  std::vector<JobRecord> jobs = {Job(1, v1::JOB_STATE_RUNNING), Job(2), Job(3), Job(4)};
  std::mt19937 random(7);
  for (int i = 0; i < 20; ++i) {
    std::shuffle(jobs.begin(), jobs.end(), random);
    ASSERT_GE(NextJob(jobs, Never), 0);
    EXPECT_EQ(jobs[NextJob(jobs, Never)].acceptance, 2);
    EXPECT_EQ(QueuePosition(jobs, "jobs/a1"), 0);
    EXPECT_EQ(QueuePosition(jobs, "jobs/a2"), 0);
    EXPECT_EQ(QueuePosition(jobs, "jobs/a4"), 2);
    EXPECT_EQ(JobsBefore(jobs, Job(5).job), 3);
  }
}

TEST(SchedulingPolicyTest, AHigherPriorityGoesFirst) {
  JobRecord low = Job(1);
  JobRecord high = Job(3);
  high.job.mutable_spec()->set_priority(5);
  low.job.mutable_spec()->set_priority(-5);
  const std::vector<JobRecord> jobs = {low, Job(2), high};
  EXPECT_EQ(NextJob(jobs, Never), 2);
  EXPECT_EQ(QueuePosition(jobs, "jobs/a3"), 0);
  EXPECT_EQ(QueuePosition(jobs, "jobs/a2"), 1);
  EXPECT_EQ(QueuePosition(jobs, "jobs/a1"), 2);
  EXPECT_EQ(JobsBefore(jobs, high.job), 1);
  EXPECT_EQ(JobsBefore(jobs, low.job), 3);
}

TEST(SchedulingPolicyTest, WhatIsPostponedIsPassed) {
  const std::vector<JobRecord> jobs = {Job(1), Job(2)};
  EXPECT_EQ(NextJob(jobs, [](const JobRecord& job) { return job.acceptance == 1; }), 1);
  EXPECT_EQ(NextJob(jobs, [](const JobRecord&) { return true; }), -1);
}

TEST(SchedulingPolicyTest, NobodyWaits) {
  JobRecord wished = Job(1);
  wished.wishes.cancel = true;
  EXPECT_EQ(NextJob({}, Never), -1);
  EXPECT_EQ(NextJob({wished, Job(2, v1::JOB_STATE_CANCELLING)}, Never), -1);
  EXPECT_EQ(QueuePosition({wished, Job(3)}, "jobs/a3"), 0);
}

}  // namespace
}  // namespace megatrain
