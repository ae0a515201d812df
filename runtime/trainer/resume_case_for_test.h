// A toy job on a disk that can fail, for tests of what a job that stopped goes on from.

#ifndef RUNTIME_TRAINER_RESUME_CASE_FOR_TEST_H_
#define RUNTIME_TRAINER_RESUME_CASE_FOR_TEST_H_

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/faulty_file_system.h"
#include "runtime/base/memory_folder_for_test.h"
#include "runtime/base/posix_file_system.h"
#include "runtime/base/virtual_clock.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/data/prepared_data_for_test.h"
#include "runtime/trainer/cpu_backend.h"
#include "runtime/trainer/recording_observer.h"
#include "runtime/trainer/toy_model_for_test.h"
#include "runtime/trainer/trainer.h"

namespace megatrain {

class ResumeCase : public testing::Test {
 protected:
  ResumeCase()
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

}  // namespace megatrain

#endif  // RUNTIME_TRAINER_RESUME_CASE_FOR_TEST_H_
