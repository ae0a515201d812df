#include "server/datasets/helper_process.h"

#include <unistd.h>

#include <csignal>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/virtual_clock.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

class HelperProcessTest : public ::testing::Test {
 protected:
  std::unique_ptr<HelperProcess> Start(const std::string& script) {
    auto process = HelperProcess::Start(
        {.arguments = {"/bin/sh", "-c", script, "sh"}, .environment = {"GREETING=hello"}}, clock_);
    EXPECT_TRUE(process.ok()) << process.status();
    return *std::move(process);
  }

  VirtualClock clock_;
};

TEST_F(HelperProcessTest, GivesBothStreamsAndTheCode) {
  const auto outcome =
      Start("echo $GREETING; echo oops >&2; exit 3")->Wait(absl::InfiniteDuration());
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_EQ(outcome.signal, 0);
  EXPECT_EQ(outcome.output, "hello\n");
  EXPECT_EQ(outcome.errors, "oops\n");
}

TEST_F(HelperProcessTest, HasOnlyItsEnvironmentNoInputAndNoOtherFile) {
  ASSERT_EQ(::setenv("SECRET", "secret", 1), 0);
  const int open_fd = ::dup(STDIN_FILENO);
  // ls itself opens the folder: 3. Without close-on-exec, open_fd would be there too.
  const auto outcome = Start("env; cat; ls /proc/self/fd | tr '\\n' ' '; kill -s TERM $$")
                           ->Wait(absl::InfiniteDuration());
  ::close(open_fd);
  EXPECT_THAT(outcome.output, HasSubstr("GREETING=hello"));
  EXPECT_EQ(outcome.output.find("SECRET"), std::string::npos);
  EXPECT_THAT(outcome.output, HasSubstr("0 1 2 3 "));
  EXPECT_EQ(outcome.output.find(" 4 "), std::string::npos);
  EXPECT_EQ(outcome.signal, SIGTERM);
}

TEST_F(HelperProcessTest, KeepsTheTailOfALongOutput) {
  const auto outcome =
      Start("i=0; while [ $i -lt 40000 ]; do echo line $i; i=$((i+1)); done; echo the end")
          ->Wait(absl::InfiniteDuration());
  EXPECT_LE(outcome.output.size(), size_t{64} << 10);
  EXPECT_TRUE(outcome.output.ends_with("the end\n"));
}

TEST_F(HelperProcessTest, IsKilledWithItsChildrenWhenItsTimeIsOver) {
  auto process = Start("echo started; sleep 1000 & sleep 1000");
  std::thread time([this] { clock_.Advance(absl::Seconds(10)); });
  const auto outcome = process->Wait(absl::Seconds(10));
  time.join();
  EXPECT_TRUE(outcome.timed_out);
  EXPECT_EQ(outcome.signal, SIGKILL);
}

TEST_F(HelperProcessTest, KillEndsTheWait) {
  auto process = Start("sleep 1000");
  std::thread killer([&process] { process->Kill(); });
  const auto outcome = process->Wait(absl::InfiniteDuration());
  killer.join();
  EXPECT_TRUE(outcome.killed);
  EXPECT_FALSE(outcome.timed_out);
  process->Kill();  // nothing is left to kill
}

TEST_F(HelperProcessTest, AnAbsentProgramIsNamed) {
  const auto process = HelperProcess::Start({.arguments = {"/absent/program"}}, clock_);
  EXPECT_THAT(std::string(process.status().message()), HasSubstr("/absent/program"));
}

}  // namespace
}  // namespace megatrain
