// Jobs that stop anywhere and go on from their checkpoints: the same losses, weights, moments and
// order of rows as the ones that were never stopped, bit by bit.

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/data/prepared_data_for_test.h"
#include "runtime/trainer/job_inputs.h"
#include "runtime/trainer/recording_observer.h"
#include "runtime/trainer/resume_case_for_test.h"
#include "runtime/trainer/trainer.h"

namespace megatrain {
namespace {

class ResumeTest : public ResumeCase {
 protected:
  // Pauses the job within its first evaluation, with that checkpoint.
  void PauseInEvaluation(const std::string& checkpoint, RecordingObserver& paused) {
    paused.request = SaveRequest{.trigger = CheckpointTrigger::kPause, .then_stop = true};
    paused.requests_in_evaluation = true;
    const auto result = Run(paused);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->paused_checkpoint, checkpoint);
  }
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
  ASSERT_NO_FATAL_FAILURE(PauseInEvaluation("step-00000005", paused));
  EXPECT_EQ(paused.steps.size(), 5u);
  EXPECT_TRUE(paused.evaluations.empty());
  EXPECT_EQ(paused.checkpoints.back().trigger, CheckpointTrigger::kPause);
  ExpectTheRestEquals(whole, paused);
}

// The loss of the last evaluation is in the last checkpoint, also when that was there before it.
TEST_F(ResumeTest, APauseInterruptsTheLastEvaluation) {
  job_.evaluation.data_path = WritePreparedData("valid_" + name_, RandomRows(20, 12, 64, 8));
  job_.save.every_steps = 0;
  const Whole whole = RunWhole();
  RecordingObserver paused;
  ASSERT_NO_FATAL_FAILURE(PauseInEvaluation("step-00000015", paused));
  ExpectTheRestEquals(whole, paused);
  const auto saved = OpenCheckpoint(job_.save.folder + "/step-00000015", posix_);
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_EQ(saved->manifest.trigger, CheckpointTrigger::kFinal);
  EXPECT_EQ(saved->manifest.progress.last_evaluation->loss, whole.observer.evaluations[0].loss);
}

// The only checkpoint is written again, with its evaluation: a death at any operation on the disk
// leaves it to go on from, under the name by which its job knows it.
TEST_F(ResumeTest, ADeathWhileACheckpointIsReplacedLosesNoBit) {
  job_.batches.epochs = 1;
  job_.evaluation.data_path = WritePreparedData("valid_" + name_, RandomRows(20, 12, 64, 8));
  job_.save.every_steps = 0;
  const Whole whole = RunWhole();
  RecordingObserver paused;
  ASSERT_NO_FATAL_FAILURE(PauseInEvaluation("step-00000005", paused));
  const std::string paused_folder = job_.save.folder;
  job_.save.folder = folder_.path() + "/resumed";
  job_.start.resume_path = job_.save.folder + "/step-00000005";
  int deaths = 0;
  for (bool died = true; died; ++deaths) {
    SCOPED_TRACE(deaths);
    std::filesystem::remove_all(job_.save.folder);
    std::filesystem::copy(paused_folder, job_.save.folder,
                          std::filesystem::copy_options::recursive);
    disk_.FailAt(deaths, FaultyFileSystem::Fault::kCrash);
    RecordingObserver dead;
    died = !Run(dead).ok();
    disk_.Repair();
    RecordingObserver rest;
    const auto result = Run(rest);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(rest.first_step, 5);
    EXPECT_EQ(FinalChecksums(job_.save.folder), whole.state_checksums);
    EXPECT_TRUE(ReadWeights(OutputPath()) == whole.exported);
  }
  EXPECT_GT(deaths, 2 * 16);
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

TEST_F(ResumeTest, AForkOfOneThatStoppedEarlyTrainsOn) {
  job_.evaluation = {.split = 0.2, .every_steps = 1, .patience = 2, .min_delta = 1e9};
  RecordingObserver stopped;
  ASSERT_TRUE(Run(stopped).ok());
  ASSERT_EQ(stopped.steps.size(), 3u);
  StartFromNewest();
  job_.save.folder = Fresh("fork_checkpoints");
  const TrainJob fork = job_;
  RecordingObserver observer;
  ASSERT_TRUE(Run(observer).ok());
  EXPECT_EQ(observer.first_step, 3);
  EXPECT_EQ(observer.steps.size(), 2u) << "its own patience ends it";
  StartFromNewest();
  RecordingObserver resumed;
  ASSERT_TRUE(Run(resumed).ok());
  EXPECT_TRUE(resumed.steps.empty()) << "it has stopped itself";
  job_ = fork;
  job_.save.folder = Fresh("patient_checkpoints");
  job_.evaluation.patience = 0;
  RecordingObserver patient;
  ASSERT_TRUE(Run(patient).ok());
  EXPECT_EQ(patient.steps.size(), 9u) << "all that were left of 12";
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
