// Child process, supervisor and runner against a real process over a real socket.

#include <signal.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/clock.h"
#include "runtime/base/condition_variable.h"
#include "runtime/base/mutex.h"
#include "server/engine_process/child_process.h"
#include "server/engine_process/engine_job_runner.h"
#include "server/engine_process/engine_supervisor.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ChildProcessTest, SaysHowItEnded) {
  const std::string log = ::testing::TempDir() + "/child.log";
  auto exits = ChildProcess::Spawn({"/bin/sh", {"-c", "echo hello; exit 3"}, log});
  ASSERT_TRUE(exits.ok()) << exits.status();
  EXPECT_EQ(InWords((*exits)->Wait()), "ended with exit code 3");
  EXPECT_TRUE((*exits)->HasEnded());
  auto sleeps = ChildProcess::Spawn({"/bin/sleep", {"1000"}, log});
  EXPECT_FALSE((*sleeps)->HasEnded());
  (*sleeps)->Kill(SIGKILL);
  EXPECT_EQ(InWords((*sleeps)->Wait()), "was killed by signal 9 (Killed)");
  (*sleeps)->Kill(SIGKILL);  // nobody any more
  EXPECT_FALSE(ChildProcess::Spawn({"/nowhere/engine", {}, log}).ok());
}

class EngineProcessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/engine-XXXXXX";  // TEST_TMPDIR can be longer than a socket's path may be
    folder_ = mkdtemp(name);
  }

  void Start(std::vector<std::string> arguments = {},
             absl::Duration question_interval = absl::Seconds(5)) {
    EngineSupervisor::Options options;
    options.question_interval = question_interval;
    options.engine_path = "server/engine_process/scripted_engine";
    options.socket_path = folder_ + "/engine.sock";
    options.log_path = folder_ + "/engine.log";
    options.arguments = std::move(arguments);
    options.first_delay = absl::Milliseconds(1);
    options.longest_delay = absl::Milliseconds(10);
    const auto wake = [this] {
      MutexLock lock(&mutex_);
      ++news_;
      changed_.NotifyAll();
    };
    supervisor_ = std::make_unique<EngineSupervisor>(options, clock_, wake);
    runner_ = std::make_unique<EngineJobRunner>(*supervisor_, clock_, wake);
  }

  void WaitUntil(const std::function<bool()>& condition) {
    while (true) {
      int seen = 0;
      {
        MutexLock lock(&mutex_);
        seen = news_;
      }
      if (condition()) {
        return;
      }
      MutexLock lock(&mutex_);
      while (news_ == seen) {
        changed_.Wait(&mutex_);
      }
    }
  }

  // Runs a job to its last event; once it has told of its start, calls `then`.
  std::vector<RunnerEvent> Run(const std::string& name, const std::function<void()>& then = [] {}) {
    WaitUntil([this] { return runner_->Ready(); });
    engine::v1::RunJobRequest request;
    request.set_name(name);
    runner_->Start(++run_, request);
    std::vector<RunnerEvent> events;
    WaitUntil([&] {
      for (RunnerEvent& event : runner_->TakeEvents()) {
        EXPECT_EQ(event.run, run_);
        events.push_back(std::move(event));
      }
      if (!events.empty()) {
        then();
      }
      return !events.empty() && IsLast(events.back());
    });
    return events;
  }

  static bool IsLast(const RunnerEvent& event) {
    const auto* engine_event = std::get_if<engine::v1::RunJobEvent>(&event.kind);
    return engine_event == nullptr || engine_event->has_finished() || engine_event->has_failed() ||
           engine_event->has_paused();
  }

  static std::string DeathOf(const std::vector<RunnerEvent>& events) {
    const auto* died = std::get_if<EngineDied>(&events.back().kind);
    return died == nullptr ? "" : died->reason.code() + ": " + died->reason.message();
  }

  SystemClock clock_;
  Mutex mutex_;
  ConditionVariable changed_;
  int news_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string folder_;
  int64_t run_ = 0;
  std::unique_ptr<EngineSupervisor> supervisor_;
  std::unique_ptr<EngineJobRunner> runner_;
};

TEST_F(EngineProcessTest, RunsJobsOneAfterAnother) {
  Start();
  for (int i = 0; i < 3; ++i) {
    const auto events = Run("jobs/good");
    ASSERT_EQ(events.size(), 3u);
    EXPECT_EQ(std::get<engine::v1::RunJobEvent>(events[0].kind).started().planned_step_count(), 2);
    EXPECT_EQ(std::get<engine::v1::RunJobEvent>(events[2].kind).finished().peak_host_bytes(), 7);
  }
  EXPECT_EQ(supervisor_->GetState().restart_count, 0);
}

TEST_F(EngineProcessTest, AnErrorOfTheEngineIsNoDeath) {
  Start();
  const auto failed = Run("jobs/fail");
  EXPECT_EQ(std::get<engine::v1::RunJobEvent>(failed.back().kind).failed().code(), "OUT_OF_DATA");
  const auto refused = Run("jobs/refuse");
  EXPECT_EQ(std::get<engine::v1::RunJobEvent>(refused.back().kind).failed().message(),
            "spec.train.steps is 0");
  EXPECT_EQ(supervisor_->GetState().generation, 1);
}

TEST_F(EngineProcessTest, ADeathIsExplainedAndTheNextJobRuns) {
  Start();
  EXPECT_THAT(DeathOf(Run("jobs/kill")),
              AllOf(HasSubstr("ENGINE_DIED"), HasSubstr("signal 9"), HasSubstr("out of memory")));
  EXPECT_THAT(DeathOf(Run("jobs/exit")), HasSubstr("exit code 3"));
  EXPECT_EQ(Run("jobs/good").size(), 3u);
  EXPECT_EQ(supervisor_->GetState().restart_count, 2);
  EXPECT_EQ(supervisor_->GetState().generation, 3);
}

TEST_F(EngineProcessTest, AnEngineThatEndsItselfInAStallSaysWhere) {
  Start();
  EXPECT_EQ(DeathOf(Run("jobs/stall")),
            "ENGINE_STALLED: the engine ended itself: jobs/stall stalled: compute is in layer 3");
  EXPECT_EQ(Run("jobs/good").size(), 3u);
}

// As a process that the kernel holds, or a debugger: it lives, and nothing in it runs.
TEST_F(EngineProcessTest, AnEngineThatGivesNoSignOfLifeIsKilledAndTheNextJobRuns) {
  Start({}, /*question_interval=*/absl::Milliseconds(300));
  WaitUntil([this] { return runner_->Ready(); });
  engine::v1::RunJobRequest request;
  request.set_name("jobs/wait");
  runner_->Start(++run_, request);
  std::vector<RunnerEvent> events;
  WaitUntil([&] {
    for (RunnerEvent& event : runner_->TakeEvents()) {
      if (events.empty()) {
        kill(supervisor_->GetState().pid, SIGSTOP);  // at its first event
      }
      events.push_back(std::move(event));
    }
    return !events.empty() && IsLast(events.back());
  });
  EXPECT_THAT(DeathOf(events), AllOf(HasSubstr("ENGINE_DIED"), HasSubstr("signal 9"),
                                     HasSubstr("by this server: it gave no sign of life for ")));
  EXPECT_EQ(Run("jobs/good").size(), 3u);
  EXPECT_EQ(supervisor_->GetState().restart_count, 1);
}

TEST_F(EngineProcessTest, StopEndsARunAndTheEngineLivesOn) {
  Start();
  const auto events = Run("jobs/wait", [this] { runner_->Stop(); });
  EXPECT_TRUE(std::holds_alternative<RunStopped>(events.back().kind));
  EXPECT_FALSE(supervisor_->GetState().stub == nullptr);
  EXPECT_EQ(Run("jobs/good").size(), 3u) << "the engine was not busy any more";
  EXPECT_EQ(supervisor_->GetState().generation, 1);
}

TEST_F(EngineProcessTest, ASaveIsAskedForAndARunCanEndByIt) {
  Start();
  const auto events = Run(
      "jobs/pause", [this] { runner_->Save(v1::CHECKPOINT_TRIGGER_PAUSE, /*then_stop=*/true); });
  EXPECT_EQ(std::get<engine::v1::RunJobEvent>(events.back().kind).paused().checkpoint_id(),
            "CHECKPOINT_TRIGGER_PAUSE");
  runner_->Save(v1::CHECKPOINT_TRIGGER_MANUAL, /*then_stop=*/false);  // nobody any more
  EXPECT_EQ(Run("jobs/good").size(), 3u);
}

TEST_F(EngineProcessTest, AKilledIdleEngineComesBack) {
  Start();
  WaitUntil([this] { return runner_->Ready(); });
  const auto first = static_cast<pid_t>(supervisor_->GetState().engine.baseline_bytes());
  kill(first, SIGKILL);
  WaitUntil([this] { return supervisor_->GetState().generation == 2 && runner_->Ready(); });
  EXPECT_THAT(supervisor_->GetState().last_death.message(), HasSubstr("signal 9"));
}

TEST_F(EngineProcessTest, AnEngineThatCannotStartIsTriedAgainAndItsReasonTold) {
  Start({"--die-at-start"});
  WaitUntil([this] { return supervisor_->GetState().restart_count >= 3; });
  EXPECT_FALSE(runner_->Ready());
  EXPECT_EQ(
      supervisor_->GetState().last_death.message(),
      "the engine ended with exit code 4; last in " + folder_ + "/engine.log: no such device");
}

TEST_F(EngineProcessTest, TheEngineEndsWithItsSupervisor) {
  Start();
  WaitUntil([this] { return runner_->Ready(); });
  const auto pid = static_cast<pid_t>(supervisor_->GetState().engine.baseline_bytes());
  runner_.reset();
  supervisor_.reset();
  EXPECT_NE(kill(pid, 0), 0);
}

}  // namespace
}  // namespace megatrain
