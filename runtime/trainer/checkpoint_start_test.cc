// What a job that goes on takes from its checkpoint beside the planes, and what it says of one that
// the disk does not give.

#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/training_log.h"
#include "runtime/trainer/job_inputs.h"
#include "runtime/trainer/recording_observer.h"
#include "runtime/trainer/resume_case_for_test.h"

namespace megatrain {
namespace {

class CheckpointStartTest : public ResumeCase {
 protected:
  CheckpointStartTest() {
    job_.batches = {.batch_rows = 8, .max_sequence_length = 12, .seed = 2, .epochs = 2};
    job_.evaluation = {.split = 0.1, .every_steps = 3};
  }

  Checkpoint Newest() { return ListCheckpoints(job_.save.folder, posix_)->valid.back(); }
};

// Figures of steps, and losses of evaluations.
using Figures =
    std::pair<std::vector<std::vector<double>>, std::vector<std::pair<int64_t, double>>>;

Figures FiguresOf(const RecordingObserver& observer) {
  Figures figures;
  for (const StepReport& step : observer.steps) {
    figures.first.push_back({static_cast<double>(step.step), step.loss, step.gradient_norm,
                             step.learning_rate, static_cast<double>(step.token_count),
                             static_cast<double>(step.loss_token_count)});
  }
  for (const EvaluationReport& evaluation : observer.evaluations) {
    figures.second.emplace_back(evaluation.step, evaluation.loss);
  }
  return figures;
}

Figures FiguresOf(const TrainingLog& log) {
  Figures figures;
  for (const LogEntry& entry : log) {
    if (entry.kind == LogEntry::Kind::kEvaluation) {
      figures.second.emplace_back(entry.step, entry.loss);
    } else {
      figures.first.push_back({static_cast<double>(entry.step), entry.loss, entry.gradient_norm,
                               entry.learning_rate, static_cast<double>(entry.token_count),
                               static_cast<double>(entry.loss_token_count)});
    }
  }
  return figures;
}

// Whoever was told of nothing finds all of it in the last checkpoint, also of steps before the one
// that the job went on from.
TEST_F(CheckpointStartTest, TheLastCheckpointRemembersEveryFigure) {
  RecordingObserver whole;
  ASSERT_TRUE(Run(whole).ok());
  ASSERT_GE(whole.evaluations.size(), 2u);
  EXPECT_EQ(FiguresOf(*ReadTrainingLog(Newest(), posix_)), FiguresOf(whole));
  job_.save.folder = Fresh("checkpoints");
  RecordingObserver stopped;
  stopped.stop_after = 6;
  ASSERT_FALSE(Run(stopped).ok());
  job_.start.resume_path = Newest().path;
  RecordingObserver rest;
  ASSERT_TRUE(Run(rest).ok());
  EXPECT_LT(rest.steps.size(), whole.steps.size());
  EXPECT_EQ(FiguresOf(*ReadTrainingLog(Newest(), posix_)), FiguresOf(whole));
}

// A disk that does not give a checkpoint says nothing against its bytes.
TEST_F(CheckpointStartTest, OneThatCannotBeReadIsNotCalledDamaged) {
  RecordingObserver first;
  ASSERT_TRUE(Run(first).ok());
  job_.start.resume_path = Newest().path;
  RecordingObserver observer;
  observer.on_planned = [this] { disk_.Break(); };
  const absl::Status status = Run(observer).status();
  EXPECT_TRUE(IsUnreadableCheckpoint(status)) << status;
  EXPECT_FALSE(IsCorruptCheckpoint(status)) << status;
  EXPECT_TRUE(observer.steps.empty());
  disk_.Repair();
  RecordingObserver again;
  const absl::Status repaired = Run(again).status();
  EXPECT_TRUE(repaired.ok()) << repaired;
}

}  // namespace
}  // namespace megatrain
