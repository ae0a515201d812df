#include "client/cli/pending_request.h"

#include <filesystem>
#include <map>
#include <sstream>

#include "gtest/gtest.h"

namespace megatrain {
namespace {

class PendingRequestTest : public ::testing::Test {
 protected:
  PendingRequestTest() {
    variables_["XDG_STATE_HOME"] = ::testing::TempDir() + "/" +
                                   ::testing::UnitTest::GetInstance()->current_test_info()->name();
  }

  std::map<std::string, std::string> variables_;
  std::ostringstream out_;
  std::ostringstream err_;
  SystemClock clock_;
  Interruption interruption_;
  Environment environment_{
      .out = out_,
      .err = err_,
      .variable = [this](const char* name) { return variables_[name]; },
      .clock = clock_,
      .interruption = interruption_,
  };
};

TEST_F(PendingRequestTest, KeepsTheIdUntilTheAnswer) {
  const std::string first = PendingRequest(environment_, "job a").id();
  PendingRequest again(environment_, "job a");
  EXPECT_EQ(again.id(), first);
  EXPECT_NE(PendingRequest(environment_, "job b").id(), first);
  again.Answered();
  EXPECT_NE(PendingRequest(environment_, "job a").id(), first);
}

TEST_F(PendingRequestTest, AnAnsweredOneLeavesNothing) {
  PendingRequest(environment_, "job a").Answered();
  EXPECT_TRUE(std::filesystem::is_empty(variables_["XDG_STATE_HOME"] + "/megatrain/pending"));
}

TEST_F(PendingRequestTest, WorksWithoutAHome) {
  variables_.clear();
  EXPECT_NE(PendingRequest(environment_, "a").id(), PendingRequest(environment_, "a").id());
  variables_["XDG_STATE_HOME"] = "/proc/nobody/may/write/here";
  EXPECT_EQ(PendingRequest(environment_, "a").id().size(), 36u);
}

}  // namespace
}  // namespace megatrain
