// Jobs that stop anywhere and go on from their checkpoints: the same losses, weights, moments and
// order of rows as the ones that were never stopped, bit by bit.

#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/faulty_file_system.h"
#include "runtime/base/memory_folder_for_test.h"
#include "runtime/base/posix_file_system.h"
#include "runtime/base/virtual_clock.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/verify_checkpoint.h"
#include "runtime/data/prepared_data_for_test.h"
#include "runtime/trainer/cpu_backend.h"
#include "runtime/trainer/job_inputs.h"
#include "runtime/trainer/recording_observer.h"
#include "runtime/trainer/toy_model_for_test.h"
#include "runtime/trainer/trainer.h"

namespace megatrain {
namespace {

class ResumeTest : public testing::Test {
 protected:
  ResumeTest()
      : backend_(MakeCpuBackend(/*compute_threads=*/1)),
        trainer_({*backend_, disk_, clock_}, /*optimizer_threads=*/2) {
    name_ = testing::UnitTest::GetInstance()->current_test_info()->name();
    job_.model_path = WriteToyModel("model_" + name_, ToyModel{});
    job_.data_path = WritePreparedData("data_" + name_, RandomRows(40, 12, 64, 7));
    job_.model_fingerprint = "model";
    job_.batches = {
        .batch_rows = 8, .micro_batch_rows = 3, .max_sequence_length = 12, .seed = 2, .epochs = 3};
    job_.schedule = {.shape = LearningRateShape::kCosine, .peak = 3e-3, .warmup_steps = 2};
    job_.optimizer.weight_decay = 0.1;
    job_.save = {.folder = Fresh("checkpoints"), .every_steps = 4, .at_end = true, .spec = "spec"};
  }

  std::string Fresh(const std::string& what) {
    const std::string path = folder_.path() + "/" + what;
    std::filesystem::remove_all(path);
    return path;
  }

  std::string OutputPath() const { return folder_.path() + "/output"; }

  // The job without a stop: what all others must equal.
  struct Whole {
    RecordingObserver observer;
    std::vector<uint32_t> state_checksums;
    std::string exported;
  };
  Whole RunWhole() {
    Whole whole;
    TrainJob job = job_;
    job.save.folder = Fresh("whole_checkpoints");
    job.output_path = Fresh("whole_output");
    const auto result = trainer_.Run(job, whole.observer);
    EXPECT_TRUE(result.ok()) << result.status();
    whole.state_checksums = FinalChecksums(job.save.folder);
    whole.exported = ReadWeights(job.output_path);
    return whole;
  }

  static std::string ReadWeights(const std::string& output) {
    std::ifstream file(output + "/model.safetensors", std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  // Of the planes and the log of the last checkpoint.
  std::vector<uint32_t> FinalChecksums(const std::string& folder) {
    const auto listing = ListCheckpoints(folder, posix_);
    EXPECT_TRUE(listing.ok() && !listing->valid.empty());
    std::vector<uint32_t> checksums;
    for (const CheckpointFile& file : listing->valid.back().manifest.files) {
      checksums.push_back(file.crc32c);
    }
    return checksums;
  }

  absl::StatusOr<TrainResult> Run(RecordingObserver& observer) {
    TrainJob job = job_;
    job.output_path = Fresh("output");
    return trainer_.Run(job, observer);
  }

  // Goes on from the newest valid checkpoint, or from the start when there is none.
  void StartFromNewest() {
    disk_.Repair();
    job_.start = {};
    const auto listing = ListCheckpoints(job_.save.folder, posix_);
    if (listing.ok() && !listing->valid.empty()) {
      job_.start.resume_path = listing->valid.back().path;
    }
  }

  // Resumes to the end; `before` stopped somewhere. The log of losses that counts is what `before`
  // told up to the checkpoint, and what came after it.
  void ExpectTheRestEquals(const Whole& whole, const RecordingObserver& before) {
    StartFromNewest();
    RecordingObserver rest;
    const auto result = Run(rest);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->step_count, static_cast<int64_t>(whole.observer.steps.size()));
    std::vector<StepReport> log(before.steps.begin(), before.steps.begin() + rest.first_step);
    log.insert(log.end(), rest.steps.begin(), rest.steps.end());
    ExpectSameLog(whole.observer.steps, log);
    ExpectSameEvaluations(whole.observer.evaluations, before, rest);
    EXPECT_EQ(FinalChecksums(job_.save.folder), whole.state_checksums);
    EXPECT_TRUE(ReadWeights(OutputPath()) == whole.exported);
  }

  static void ExpectSameLog(const std::vector<StepReport>& wanted,
                            const std::vector<StepReport>& log) {
    ASSERT_EQ(log.size(), wanted.size());
    for (size_t i = 0; i < log.size(); ++i) {
      EXPECT_EQ(log[i].step, wanted[i].step);
      EXPECT_TRUE(log[i].loss == wanted[i].loss ||
                  (std::isnan(log[i].loss) && std::isnan(wanted[i].loss)))
          << i;
      EXPECT_EQ(log[i].skipped, wanted[i].skipped) << i;
      if (!log[i].skipped) {
        EXPECT_EQ(log[i].gradient_norm, wanted[i].gradient_norm) << i;
      }
      EXPECT_EQ(log[i].learning_rate, wanted[i].learning_rate) << i;
      EXPECT_EQ(log[i].token_count, wanted[i].token_count) << i;
      EXPECT_EQ(log[i].loss_token_count, wanted[i].loss_token_count) << i;
      EXPECT_EQ(log[i].rows_crc32c, wanted[i].rows_crc32c) << i;
    }
  }

  static void ExpectSameEvaluations(const std::vector<EvaluationReport>& wanted,
                                    const RecordingObserver& before,
                                    const RecordingObserver& rest) {
    std::vector<EvaluationReport> all;
    for (const EvaluationReport& evaluation : before.evaluations) {
      if (evaluation.step <= rest.first_step) {
        all.push_back(evaluation);
      }
    }
    for (const EvaluationReport& evaluation : rest.evaluations) {
      if (all.empty() || evaluation.step > all.back().step) {
        all.push_back(evaluation);
      }
    }
    ASSERT_EQ(all.size(), wanted.size());
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(all[i].step, wanted[i].step);
      EXPECT_EQ(all[i].loss, wanted[i].loss) << i;
      EXPECT_EQ(all[i].loss_token_count, wanted[i].loss_token_count) << i;
    }
  }

  MemoryFolder folder_;  // of all that is written: faults are disk_'s
  PosixFileSystem posix_;
  FaultyFileSystem disk_{&posix_};
  VirtualClock clock_;
  const std::unique_ptr<ComputeBackend> backend_;
  Trainer trainer_;
  std::string name_;
  TrainJob job_;
};

// R12: inside an epoch, at its end, before the first checkpoint and after the last step. At each
// stop updates of the last step are under way, and one more step is.
TEST_F(ResumeTest, AStopAfterAnyStepLosesNoBit) {
  job_.evaluation = {.split = 0.1, .every_steps = 3};
  const Whole whole = RunWhole();
  ASSERT_EQ(whole.observer.steps.size(), 15u);
  ASSERT_EQ(whole.observer.evaluations.size(), 5u);
  for (int64_t stop = 0; stop <= 15; ++stop) {
    SCOPED_TRACE(stop);
    job_.save.folder = Fresh("checkpoints");
    job_.start = {};
    RecordingObserver stopped;
    stopped.stop_after = stop;
    ASSERT_EQ(Run(stopped).status().code(), absl::StatusCode::kCancelled);
    ExpectTheRestEquals(whole, stopped);
  }
}

TEST_F(ResumeTest, InBfloat16Too) {
  job_.compute_dtype = ComputeDtype::kBfloat16;
  job_.batches.packing = true;
  const Whole whole = RunWhole();
  for (const int64_t stop : {5, 7, 9}) {
    job_.save.folder = Fresh("checkpoints");
    job_.start = {};
    RecordingObserver stopped;
    stopped.stop_after = stop;
    ASSERT_EQ(Run(stopped).status().code(), absl::StatusCode::kCancelled);
    ExpectTheRestEquals(whole, stopped);
  }
}

TEST_F(ResumeTest, AStopDuringAnEvaluationLosesNoBit) {
  job_.evaluation = {.data_path = WritePreparedData("valid_" + name_, RandomRows(20, 12, 64, 8)),
                     .every_steps = 5};
  const Whole whole = RunWhole();
  RecordingObserver stopped;
  stopped.stops_in_evaluation = true;
  ASSERT_EQ(Run(stopped).status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(stopped.steps.size(), 5u);
  ExpectTheRestEquals(whole, stopped);
}

// Who waits for a pause does not wait for all rows of an evaluation; it is done again, with the
// same figure.
TEST_F(ResumeTest, APauseInterruptsAnEvaluation) {
  job_.evaluation = {.data_path = WritePreparedData("valid_" + name_, RandomRows(20, 12, 64, 8)),
                     .every_steps = 5};
  const Whole whole = RunWhole();
  RecordingObserver paused;
  paused.request = SaveRequest{.trigger = CheckpointTrigger::kPause, .then_stop = true};
  paused.requests_in_evaluation = true;
  const auto result = Run(paused);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->paused_checkpoint, "step-00000005");
  EXPECT_EQ(paused.steps.size(), 5u);
  EXPECT_TRUE(paused.evaluations.empty());
  EXPECT_EQ(paused.checkpoints.back().trigger, CheckpointTrigger::kPause);
  ExpectTheRestEquals(whole, paused);
}

TEST_F(ResumeTest, ASaveThatIsAskedForInAnEvaluationComesAfterIt) {
  job_.evaluation = {.split = 0.2, .every_steps = 5};
  job_.save.every_steps = 0;
  RecordingObserver observer;
  observer.request = SaveRequest{.trigger = CheckpointTrigger::kManual};
  observer.requests_in_evaluation = true;
  ASSERT_TRUE(Run(observer).ok());
  ASSERT_EQ(observer.checkpoints.size(), 2u);
  EXPECT_EQ(observer.checkpoints[0].step, 5);
  const auto saved = OpenCheckpoint(job_.save.folder + "/step-00000005", posix_);
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_EQ(saved->manifest.progress.last_evaluation->loss, observer.evaluations[0].loss);
}

// The process dies at any operation on the disk: in saves, and in the export.
TEST_F(ResumeTest, ADeathAtAnyOperationOnTheDiskLosesNoBit) {
  job_.batches.epochs = 1;
  job_.save.every_steps = 2;
  disk_.FailAt(int64_t{1} << 40, FaultyFileSystem::Fault::kCrash);  // counts from here on
  const Whole whole = RunWhole();
  ASSERT_EQ(whole.observer.steps.size(), 5u);
  const int64_t operations = disk_.operation_count();
  EXPECT_GT(operations, 3 * 16);  // three saves and an export
  for (int64_t operation = 0; operation < operations; ++operation) {
    SCOPED_TRACE(operation);
    job_.save.folder = Fresh("checkpoints");
    job_.start = {};
    disk_.Repair();
    disk_.FailAt(operation, FaultyFileSystem::Fault::kCrash);
    RecordingObserver died;
    EXPECT_FALSE(Run(died).ok());
    ExpectTheRestEquals(whole, died);
  }
}

// R9 goes on counting: AdamW's step is not the training's once a step was skipped.
TEST_F(ResumeTest, SkippedStepsStaySkipped) {
  job_.schedule = {.shape = LearningRateShape::kConstant, .peak = 1e30};
  job_.max_gradient_norm = 0;
  job_.nonfinite_step_limit = 6;
  job_.save.every_steps = 1;
  RecordingObserver whole;
  const absl::Status failed = Run(whole).status();
  ASSERT_EQ(failed.code(), absl::StatusCode::kAborted) << failed;
  ASSERT_TRUE(whole.steps.back().skipped);
  const auto listing = ListCheckpoints(job_.save.folder, posix_);
  const Checkpoint& third = listing->valid[listing->valid.size() - 3];
  EXPECT_LT(third.manifest.progress.update_count, third.manifest.progress.step);
  EXPECT_GT(third.manifest.progress.skipped_in_a_row, 0);
  job_.start.resume_path = third.path;
  RecordingObserver rest;
  EXPECT_EQ(Run(rest).status().message(), failed.message());
  std::vector<StepReport> log(whole.steps.begin(), whole.steps.begin() + rest.first_step);
  log.insert(log.end(), rest.steps.begin(), rest.steps.end());
  ExpectSameLog(whole.steps, log);
}

TEST_F(ResumeTest, PausesAtOnceAndGoesOn) {
  job_.evaluation = {.split = 0.1, .every_steps = 3};
  const Whole whole = RunWhole();
  RecordingObserver paused;
  paused.request = SaveRequest{.trigger = CheckpointTrigger::kPause, .then_stop = true};
  paused.request_after = 5;
  const auto result = Run(paused);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_FALSE(paused.checkpoints.empty());
  EXPECT_EQ(result->paused_checkpoint, paused.checkpoints.back().id);
  EXPECT_EQ(paused.checkpoints.back().trigger, CheckpointTrigger::kPause);
  EXPECT_GE(paused.steps.size(), 5u);
  EXPECT_LE(paused.steps.size(), 7u);
  EXPECT_EQ(result->step_count, static_cast<int64_t>(paused.steps.size()));
  EXPECT_FALSE(std::filesystem::exists(OutputPath()));
  ExpectTheRestEquals(whole, paused);
}

TEST_F(ResumeTest, SavesWhenAskedByTimeByStepsAndAtTheEnd) {
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
  void OnStall(const std::string& what) override { observer_.OnStall(what); }
  std::optional<SaveRequest> TakeSaveRequest() override { return std::nullopt; }
  bool StopRequested() override { return false; }

 private:
  VirtualClock& clock_;
  RecordingObserver& observer_;
};

TEST_F(ResumeTest, SavesByTime) {
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

// R15: nothing is lost while the disk does not take it.
TEST_F(ResumeTest, AFullDiskHoldsTheJobUntilThereIsRoom) {
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
TEST_F(ResumeTest, AFullDiskHoldsTheExportToo) {
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

TEST_F(ResumeTest, AJobThatHoldsItsExportCanBePausedOrEnded) {
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

TEST_F(ResumeTest, AJobThatHoldsCanBeEnded) {
  RecordingObserver observer;
  disk_.FillAfter(20'000, /*announced=*/false);
  EXPECT_EQ(Run(observer).status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(observer.failures.size(), 1u);
  EXPECT_TRUE(std::filesystem::is_empty(job_.save.folder));
}

TEST_F(ResumeTest, APauseThatMetAFullDiskIsStillAPause) {
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

TEST_F(ResumeTest, ADiskWithoutRoomRefusesTheJob) {
  RecordingObserver observer;
  disk_.FillAfter(1 << 20);
  const absl::Status status = Run(observer).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_NE(status.message().find("no room for checkpoints"), absl::string_view::npos) << status;
  EXPECT_EQ(observer.step_count, 0);
}

TEST_F(ResumeTest, WhatHasChangedIsRefusedByName) {
  RecordingObserver first;
  ASSERT_TRUE(Run(first).ok());
  StartFromNewest();
  const TrainJob good = job_;
  const auto expect_refusal = [&](const std::string& part) {
    RecordingObserver observer;
    const absl::Status status = Run(observer).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_NE(status.message().find(part), absl::string_view::npos) << status;
    EXPECT_EQ(observer.step_count, 0);
    job_ = good;
  };
  job_.model_fingerprint = "other";
  expect_refusal("the model's files have changed since (fingerprint model, now other)");
  job_.data_path = WritePreparedData("other_" + name_, RandomRows(40, 12, 64, 8));
  expect_refusal("the data set has changed since");
  job_.data_fingerprint = "other";
  expect_refusal("is not the data that the job was given");
  job_.evaluation.split = 0.5;
  expect_refusal("evaluation.split was 0 and is 0.5 now");
  job_.batches.seed = 3;
  expect_refusal("train.seed was 2 and is 3 now");
  job_.batches.micro_batch_rows = 4;
  expect_refusal("train.micro_batch_rows was 3 and is 4 now");
  job_.compute_dtype = ComputeDtype::kBfloat16;
  expect_refusal("train.compute_dtype");
  job_.batches.epochs = 1;
  expect_refusal("the job has only 5 steps");
}

TEST_F(ResumeTest, ADamagedCheckpointIsRefusedAndTheOneBeforeServes) {
  const Whole whole = RunWhole();
  RecordingObserver stopped;
  stopped.stop_after = 10;
  ASSERT_FALSE(Run(stopped).ok());
  StartFromNewest();
  for (const char* file : {"adam_v.bin", "training_log.bin", "weights_lo.bin", "manifest.json"}) {
    std::fstream damaged(job_.start.resume_path + "/" + file,
                         std::ios::binary | std::ios::in | std::ios::out);
    damaged.seekg(100);
    const char byte = static_cast<char>(damaged.get());
    damaged.seekp(100);
    damaged.put(static_cast<char>(byte ^ 1));
    damaged.close();
    RecordingObserver observer;
    const absl::Status status = Run(observer).status();
    EXPECT_TRUE(IsCorruptCheckpoint(status)) << status;
    EXPECT_NE(status.message().find(file), absl::string_view::npos) << status;
    EXPECT_TRUE(observer.steps.empty());
    std::fstream mended(job_.start.resume_path + "/" + file,
                        std::ios::binary | std::ios::in | std::ios::out);
    mended.seekp(100);
    mended.put(byte);
  }
  // Without its manifest it is nobody's, and the one before is the newest.
  std::filesystem::remove(job_.start.resume_path + "/manifest.json");
  ExpectTheRestEquals(whole, stopped);
}

// A fork: the exact masters, moments of zero, step 0; not what the model's files say.
TEST_F(ResumeTest, WeightsAloneStartANewJob) {
  RecordingObserver first;
  ASSERT_TRUE(Run(first).ok());
  const std::string final_checkpoint = job_.save.folder + "/step-00000015";
  job_.start.weights_path = final_checkpoint;
  job_.save.folder = Fresh("fork_checkpoints");
  job_.batches.seed = 77;
  RecordingObserver fork;
  ASSERT_TRUE(Run(fork).ok());
  EXPECT_EQ(fork.first_step, 0);
  ASSERT_EQ(fork.steps.size(), 15u);
  EXPECT_EQ(fork.steps[0].step, 1);
  EXPECT_LT(fork.steps[0].loss, first.steps[0].loss - 0.3);
  EXPECT_EQ(fork.steps[0].learning_rate, first.steps[0].learning_rate);
  EXPECT_EQ(ListCheckpoints(job_.save.folder, posix_)->valid.back().manifest.progress.update_count,
            15);
}

TEST_F(ResumeTest, EvaluationsThatBringNoGainEndTheTraining) {
  job_.evaluation = {.split = 0.2, .every_steps = 1, .patience = 2, .min_delta = 1e9};
  const Whole whole = RunWhole();
  ASSERT_EQ(whole.observer.steps.size(), 3u);
  EXPECT_NE(whole.observer.log.find("training ends early, after step 3"), std::string::npos);
  job_.save.every_steps = 1;
  RecordingObserver observer;
  const auto result = Run(observer);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->stopped_early);
  EXPECT_EQ(result->step_count, 3);
  const auto listing = ListCheckpoints(job_.save.folder, posix_);
  const TrainingProgress& progress = listing->valid.back().manifest.progress;
  EXPECT_TRUE(progress.stopped_early);
  EXPECT_EQ(progress.best_evaluation->step, 1);
  EXPECT_EQ(progress.last_evaluation->loss, observer.evaluations[2].loss);
  // Stopped before its export, it only has that left to do.
  ExpectTheRestEquals(whole, observer);
}

TEST_F(ResumeTest, EvaluatesAfterTheLastStepByDefault) {
  job_.evaluation.split = 0.1;
  RecordingObserver observer;
  ASSERT_TRUE(Run(observer).ok());
  ASSERT_EQ(observer.evaluations.size(), 1u);
  EXPECT_EQ(observer.evaluations[0].step, 15);
  EXPECT_GT(observer.evaluations[0].loss_token_count, 0);
}

}  // namespace
}  // namespace megatrain
