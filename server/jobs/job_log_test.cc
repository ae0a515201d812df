#include "server/jobs/job_log.h"

#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "runtime/base/posix_file_system.h"

namespace megatrain {
namespace {

class JobLogTest : public ::testing::Test {
 protected:
  PosixFileSystem files_;
  const std::string folder_ =
      ::testing::TempDir() + "/" + ::testing::UnitTest::GetInstance()->current_test_info()->name();
  JobLog log_{files_, folder_};
};

TEST_F(JobLogTest, AppendsDatedLinesAndReadsFromAnOffset) {
  ASSERT_TRUE(log_.Append("a", absl::UnixEpoch(), "one\ntwo").ok());
  ASSERT_TRUE(log_.Append("a", absl::UnixEpoch() + absl::Seconds(1.5), "three").ok());
  const std::string all = *log_.Read("a", 0, 1000);
  EXPECT_EQ(all, "1970-01-01T00:00:00.000Z one two\n1970-01-01T00:00:01.500Z three\n");
  const std::string first = *log_.Read("a", 0, 40);
  EXPECT_EQ(first, "1970-01-01T00:00:00.000Z one two\n") << "whole lines only";
  EXPECT_EQ(first + *log_.Read("a", first.size(), 1000), all);
  EXPECT_EQ(*log_.Read("a", all.size(), 1000), "");
}

TEST_F(JobLogTest, AJobWithoutALogHasAnEmptyOne) {
  EXPECT_EQ(*log_.Read("none", 0, 10), "");
  EXPECT_EQ(log_.Read("none", 1, 10).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(log_.Read("none", -1, 10).status().code(), absl::StatusCode::kOutOfRange);
}

TEST_F(JobLogTest, AnUnfinishedLineWaitsAndALongOneIsCut) {
  ASSERT_TRUE(log_.Append("a", absl::UnixEpoch(), "x").ok());
  std::ofstream(folder_ + "/a/log", std::ios::app) << "torn";
  const std::string line = *log_.Read("a", 0, 1000);
  EXPECT_EQ(line.back(), '\n');
  EXPECT_EQ(*log_.Read("a", line.size(), 1000), "");
  EXPECT_EQ(*log_.Read("a", 0, 5), "1970-");
}

}  // namespace
}  // namespace megatrain
