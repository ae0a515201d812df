#include "client/cli/exit_code.h"

#include "gtest/gtest.h"

namespace megatrain {
namespace {

int CodeOf(absl::StatusCode code) { return static_cast<int>(ExitCodeOf(absl::Status(code, "x"))); }

// The numbers are part of the interface: scripts test them.
TEST(ExitCodeTest, OfErrors) {
  EXPECT_EQ(static_cast<int>(ExitCodeOf(absl::OkStatus())), 0);
  EXPECT_EQ(CodeOf(absl::StatusCode::kInternal), 1);
  EXPECT_EQ(CodeOf(absl::StatusCode::kDataLoss), 1);
  EXPECT_EQ(CodeOf(absl::StatusCode::kInvalidArgument), 2);
  EXPECT_EQ(CodeOf(absl::StatusCode::kNotFound), 3);
  EXPECT_EQ(CodeOf(absl::StatusCode::kUnauthenticated), 4);
  EXPECT_EQ(CodeOf(absl::StatusCode::kPermissionDenied), 5);
  EXPECT_EQ(CodeOf(absl::StatusCode::kFailedPrecondition), 6);
  EXPECT_EQ(CodeOf(absl::StatusCode::kAlreadyExists), 6);
  EXPECT_EQ(CodeOf(absl::StatusCode::kResourceExhausted), 7);
  EXPECT_EQ(CodeOf(absl::StatusCode::kUnavailable), 8);
  EXPECT_EQ(CodeOf(absl::StatusCode::kDeadlineExceeded), 9);
  EXPECT_EQ(CodeOf(absl::StatusCode::kCancelled), 130);
}

TEST(ExitCodeTest, OfJobs) {
  EXPECT_EQ(static_cast<int>(ExitCodeOf(v1::JOB_STATE_SUCCEEDED)), 0);
  EXPECT_EQ(static_cast<int>(ExitCodeOf(v1::JOB_STATE_FAILED)), 10);
  EXPECT_EQ(static_cast<int>(ExitCodeOf(v1::JOB_STATE_CANCELLED)), 11);
}

}  // namespace
}  // namespace megatrain
