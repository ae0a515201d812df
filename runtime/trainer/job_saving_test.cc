// When a job saves its state, and what becomes of it when the disk does not take that.

#include <filesystem>
#include <optional>
#include <string>

#include "gtest/gtest.h"
#include "runtime/base/virtual_clock.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/verify_checkpoint.h"
#include "runtime/trainer/recording_observer.h"
#include "runtime/trainer/resume_case_for_test.h"
#include "runtime/trainer/trainer.h"

namespace megatrain {
namespace {

using JobSavingTest = ResumeCase;

TEST_F(JobSavingTest, SavesWhenAskedByTimeByStepsAndAtTheEnd) {
  job_.save.every_steps = 6;
  RecordingObserver observer;
  observer.request = SaveRequest{.trigger = CheckpointTrigger::kManual};
  observer.request_after = 2;
  ASSERT_TRUE(Run(observer).ok());
  ASSERT_EQ(observer.checkpoints.size(), 4u);
  EXPECT_EQ(observer.checkpoints[0].trigger, CheckpointTrigger::kManual);
  EXPECT_EQ(observer.checkpoints[1].step, 6);
  EXPECT_EQ(observer.checkpoints[1].trigger, CheckpointTrigger::kPeriodic);
  EXPECT_EQ(observer.checkpoints[2].step, 12);
  EXPECT_EQ(observer.checkpoints[3].step, 15);
  EXPECT_EQ(observer.checkpoints[3].trigger, CheckpointTrigger::kFinal);
  for (const CheckpointReport& report : observer.checkpoints) {
    const auto checkpoint = OpenCheckpoint(job_.save.folder + "/" + report.id, posix_);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    EXPECT_EQ(checkpoint->SizeBytes(), report.size_bytes);
    EXPECT_EQ(checkpoint->manifest.spec, "spec");
    EXPECT_TRUE(VerifyCheckpoint(*checkpoint, 1, posix_).ok());
  }
  EXPECT_NE(observer.log.find("training stood still"), std::string::npos) << observer.log;
}

// Time passes with each step that is told of.
class PassingTime final : public TrainObserver {
 public:
  PassingTime(VirtualClock& clock, RecordingObserver& observer)
      : clock_(clock), observer_(observer) {}
  void OnPhase(TrainPhase phase) override { observer_.OnPhase(phase); }
  void OnPhaseProgress(TrainPhase phase, int64_t done_bytes, int64_t all_bytes) override {
    observer_.OnPhaseProgress(phase, done_bytes, all_bytes);
  }
  void OnPlanned(const Plan& plan, int64_t steps, int64_t first) override {
    observer_.OnPlanned(plan, steps, first);
  }
  void OnStep(const StepReport& report, const AllStreamFigures& figures) override {
    clock_.Advance(absl::Minutes(1));
    observer_.OnStep(report, figures);
  }
  void OnLogLine(const std::string& line) override { observer_.OnLogLine(line); }
  void OnCheckpoint(const CheckpointReport& report) override { observer_.OnCheckpoint(report); }
  void OnEvaluation(const EvaluationReport& report) override { observer_.OnEvaluation(report); }
  std::optional<SaveRequest> OnCheckpointFailed(const CheckpointFailure& failure) override {
    return observer_.OnCheckpointFailed(failure);
  }
  void OnDiskWait(const CheckpointFailure& failure) override { observer_.OnDiskWait(failure); }
  void OnStall(const std::string& what) override { observer_.OnStall(what); }
  std::optional<SaveRequest> TakeSaveRequest() override { return std::nullopt; }
  bool StopRequested() override { return false; }

 private:
  VirtualClock& clock_;
  RecordingObserver& observer_;
};

TEST_F(JobSavingTest, SavesByTime) {
  job_.save.every_steps = 0;
  job_.save.at_end = false;
  job_.save.every = absl::Minutes(5);
  job_.output_path = Fresh("output");
  RecordingObserver observer;
  PassingTime passing(clock_, observer);
  ASSERT_TRUE(trainer_.Run(job_, passing).ok());
  ASSERT_EQ(observer.checkpoints.size(), 2u);
  EXPECT_GE(observer.checkpoints[0].step, 5);
  EXPECT_GE(observer.checkpoints[1].step, observer.checkpoints[0].step + 5);
}

TEST_F(JobSavingTest, AStateThatIsSavedIsNotWrittenAgain) {
  const Whole whole = RunWhole();
  const std::string path = job_.save.folder + "/step-00000004";
  const auto pause = [&](RecordingObserver& observer, int64_t told_steps) {
    observer.request = SaveRequest{.trigger = CheckpointTrigger::kPause, .then_stop = true};
    observer.request_after = told_steps;
    const auto result = Run(observer);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->paused_checkpoint, "step-00000004");
    EXPECT_EQ(observer.checkpoints.back().id, "step-00000004");
    EXPECT_EQ(observer.checkpoints.back().trigger, CheckpointTrigger::kPause);
  };
  RecordingObserver saved;  // the pause comes while it saves by itself
  ASSERT_NO_FATAL_FAILURE(pause(saved, 4));
  EXPECT_EQ(saved.checkpoints.size(), 2u);
  EXPECT_EQ(saved.checkpoints.back().size_bytes, 0);
  StartFromNewest();
  RecordingObserver loaded;  // before it does a step
  ASSERT_NO_FATAL_FAILURE(pause(loaded, 0));
  EXPECT_EQ(loaded.checkpoints.size(), 1u);
  EXPECT_EQ(OpenCheckpoint(path, posix_)->manifest.trigger, CheckpointTrigger::kPeriodic);
  RecordingObserver missed;
  missed.on_phase = [&](TrainPhase phase) {
    if (phase == TrainPhase::kTraining) {
      std::filesystem::remove_all(path);
    }
  };
  ASSERT_NO_FATAL_FAILURE(pause(missed, 0));
  EXPECT_EQ(missed.checkpoints.size(), 1u);
  EXPECT_GT(missed.checkpoints[0].size_bytes, 0);
  ExpectTheRestEquals(whole, saved);
}

// R15: nothing is lost while the disk does not take it.
TEST_F(JobSavingTest, AFullDiskHoldsTheJobUntilThereIsRoom) {
  const Whole whole = RunWhole();
  RecordingObserver observer;
  int failures = 0;
  observer.on_failure = [&]() -> std::optional<SaveRequest> {
    EXPECT_EQ(observer.phases.back(), TrainPhase::kHolding);
    EXPECT_TRUE(std::filesystem::is_empty(job_.save.folder));
    if (++failures == 2) {
      disk_.Repair();
    }
    return SaveRequest{.trigger = CheckpointTrigger::kManual};
  };
  job_.save.at_end = true;
  disk_.FillAfter(20'000, /*announced=*/false);
  const auto result = Run(observer);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(observer.failures.size(), 2u);
  EXPECT_TRUE(absl::IsResourceExhausted(observer.failures[0].status));
  EXPECT_EQ(observer.failures[0].step, 4);
  EXPECT_EQ(observer.checkpoints[0].step, 4);
  ExpectSameLog(whole.observer.steps, observer.steps);
  EXPECT_EQ(FinalChecksums(job_.save.folder), whole.state_checksums);
}

// R15 for the end of the job, also where no checkpoint has its state.
TEST_F(JobSavingTest, AFullDiskHoldsTheExportToo) {
  const Whole whole = RunWhole();
  job_.save.every_steps = 0;
  job_.save.at_end = false;
  RecordingObserver observer;
  observer.on_phase = [&](TrainPhase phase) {
    if (phase == TrainPhase::kExporting && observer.failures.empty()) {
      disk_.FillAfter(2'000, /*announced=*/false);
    }
  };
  observer.on_failure = [&]() -> std::optional<SaveRequest> {
    EXPECT_EQ(observer.phases.back(), TrainPhase::kHolding);
    if (observer.failures.size() == 2) {
      disk_.Repair();
    }
    return SaveRequest{.trigger = CheckpointTrigger::kManual};
  };
  ASSERT_TRUE(Run(observer).ok());
  ASSERT_EQ(observer.failures.size(), 2u);
  EXPECT_TRUE(absl::IsResourceExhausted(observer.failures[0].status))
      << observer.failures[0].status;
  EXPECT_EQ(observer.failures[0].step, 15);
  EXPECT_EQ(observer.failures[0].trigger, CheckpointTrigger::kFinal);
  EXPECT_TRUE(ReadWeights(OutputPath()) == whole.exported);
}

TEST_F(JobSavingTest, AJobThatHoldsItsExportCanBePausedOrEnded) {
  const Whole whole = RunWhole();
  job_.save.at_end = false;
  for (const bool pauses : {true, false}) {
    job_.save.folder = Fresh("checkpoints");
    job_.start = {};
    disk_.Repair();
    RecordingObserver observer;
    observer.on_phase = [&](TrainPhase phase) {
      if (phase == TrainPhase::kExporting) {
        disk_.FillAfter(2'000, /*announced=*/false);
      }
    };
    observer.on_failure = [&]() -> std::optional<SaveRequest> {
      disk_.Repair();
      return pauses ? std::optional(
                          SaveRequest{.trigger = CheckpointTrigger::kPause, .then_stop = true})
                    : std::nullopt;
    };
    const auto result = Run(observer);
    EXPECT_FALSE(std::filesystem::exists(OutputPath()));
    if (!pauses) {
      EXPECT_TRUE(absl::IsCancelled(result.status())) << result.status();
      continue;
    }
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->paused_checkpoint, "step-00000015");
    ExpectTheRestEquals(whole, observer);
  }
}

TEST_F(JobSavingTest, AJobThatHoldsCanBeEnded) {
  RecordingObserver observer;
  disk_.FillAfter(20'000, /*announced=*/false);
  EXPECT_EQ(Run(observer).status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(observer.failures.size(), 1u);
  EXPECT_TRUE(std::filesystem::is_empty(job_.save.folder));
}

TEST_F(JobSavingTest, APauseThatMetAFullDiskIsStillAPause) {
  RecordingObserver observer;
  observer.request = SaveRequest{.trigger = CheckpointTrigger::kPause, .then_stop = true};
  observer.on_failure = [&]() -> std::optional<SaveRequest> {
    disk_.Repair();
    return SaveRequest{.trigger = CheckpointTrigger::kManual};
  };
  disk_.FillAfter(20'000, /*announced=*/false);
  const auto result = Run(observer);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(result->paused_checkpoint.empty());
  EXPECT_EQ(observer.checkpoints.back().trigger, CheckpointTrigger::kPause);
}

TEST_F(JobSavingTest, ADiskWithoutRoomRefusesTheJob) {
  RecordingObserver observer;
  disk_.FillAfter(1 << 20);
  const absl::Status status = Run(observer).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_NE(status.message().find("no room for checkpoints"), absl::string_view::npos) << status;
  EXPECT_EQ(observer.step_count, 0);
}

}  // namespace
}  // namespace megatrain
