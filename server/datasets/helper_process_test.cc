#include "server/datasets/helper_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <string>
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

  // A pipe with a name: whoever has opened it for writing has started, and its end is the writer's.
  std::string MakeFifo() {
    const std::string path = ::testing::TempDir() + "/" +
                             ::testing::UnitTest::GetInstance()->current_test_info()->name();
    ::unlink(path.c_str());
    EXPECT_EQ(::mkfifo(path.c_str(), 0600), 0);
    return path;
  }

  // Wait(10 seconds), while time flies as soon as the script has opened the fifo.
  HelperProcess::Outcome WaitTooLong(HelperProcess& process, const std::string& fifo) {
    std::atomic<bool> over = false;
    std::thread time([&] {
      fifo_fd_ = ::open(fifo.c_str(), O_RDONLY | O_CLOEXEC);
      for (; !over; std::this_thread::yield()) clock_.Advance(absl::Seconds(1));
    });
    const HelperProcess::Outcome outcome = process.Wait(absl::Seconds(10));
    over = true;
    time.join();
    return outcome;
  }

  // Whether all that had opened the fifo end within 30 s.
  bool WriterDies() const {
    pollfd writer = {fifo_fd_, POLLIN, 0};
    return ::poll(&writer, 1, 30'000) == 1 && writer.revents == POLLHUP;
  }

  void TearDown() override {
    if (fifo_fd_ >= 0) ::close(fifo_fd_);
  }

  VirtualClock clock_;
  int fifo_fd_ = -1;
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
  const std::string fifo = MakeFifo();
  auto process = Start("echo started; sleep 1000 > " + fifo + " & sleep 1000");
  const auto outcome = WaitTooLong(*process, fifo);
  EXPECT_TRUE(outcome.timed_out);
  EXPECT_EQ(outcome.signal, SIGKILL);
  EXPECT_EQ(outcome.output, "started\n");
  EXPECT_TRUE(WriterDies());
}

TEST_F(HelperProcessTest, AChildDoesNotOutliveIt) {
  const std::string fifo = MakeFifo();
  auto process = Start("exec 3> " + fifo + "; sleep 1000 & echo the end");
  fifo_fd_ = ::open(fifo.c_str(), O_RDONLY | O_CLOEXEC);
  const auto outcome = process->Wait(absl::InfiniteDuration());
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.output, "the end\n");
  EXPECT_TRUE(WriterDies());
}

TEST_F(HelperProcessTest, AChildThatLeftTheGroupIsNotWaitedFor) {
  const std::string fifo = MakeFifo();
  auto process = Start("setsid sh -c 'echo $$ > " + fifo + "; exec sleep 1000' & sleep 1000");
  const auto outcome = WaitTooLong(*process, fifo);
  EXPECT_TRUE(outcome.timed_out);
  EXPECT_EQ(outcome.signal, SIGKILL);
  std::array<char, 16> pid = {};
  ASSERT_GT(::read(fifo_fd_, pid.data(), pid.size() - 1), 0);
  EXPECT_EQ(::kill(std::stoi(pid.data()), SIGKILL), 0) << "it had not left";
}

TEST_F(HelperProcessTest, HasNoMoreTimeWithoutItsStreams) {
  const std::string fifo = MakeFifo();
  auto process = Start("exec > " + fifo + " 2>&1; sleep 1000");
  const auto outcome = WaitTooLong(*process, fifo);
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
