#include "runtime/trainer/trainer.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/base/config.h"
#include "gtest/gtest.h"
#include "runtime/base/clock.h"
#include "runtime/base/posix_file_system.h"
#include "runtime/data/prepared_data_for_test.h"
#include "runtime/planner/machine.h"
#include "runtime/trainer/cpu_backend.h"
#include "runtime/trainer/recording_observer.h"
#include "runtime/trainer/toy_model_for_test.h"

namespace megatrain {
namespace {

class TrainerTest : public testing::Test {
 protected:
  TrainerTest()
      : backend_(MakeCpuBackend(/*compute_threads=*/1)),
        trainer_({*backend_, files_, clock_}, /*optimizer_threads=*/2) {
    name_ = testing::UnitTest::GetInstance()->current_test_info()->name();
    job_.model_path = WriteToyModel("model_" + name_, ToyModel{});
    job_.data_path = WritePreparedData("data_" + name_, RandomRows(40, 12, 64, 7));
    job_.output_path = testing::TempDir() + "/output_" + name_;
    std::filesystem::remove_all(job_.output_path);
    job_.batches = {.batch_rows = 8, .max_sequence_length = 12, .epochs = 3};
    job_.schedule = {.shape = LearningRateShape::kLinear, .peak = 3e-3, .warmup_steps = 2};
  }

  absl::StatusOr<TrainResult> Run() { return trainer_.Run(job_, observer_); }

  void ExpectFailure(absl::StatusCode code, const std::string& part) {
    const absl::Status status = Run().status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_NE(std::string(status.message()).find(part), std::string::npos)
        << status << " does not say \"" << part << "\"";
    EXPECT_FALSE(std::filesystem::exists(job_.output_path));
    for (const auto& entry : std::filesystem::directory_iterator(testing::TempDir())) {
      EXPECT_EQ(entry.path().filename().string().find("output_" + name_), std::string::npos)
          << "left behind: " << entry.path();
    }
  }

  PosixFileSystem files_;
  SystemClock clock_;
  const std::unique_ptr<ComputeBackend> backend_;
  Trainer trainer_;
  std::string name_;
  TrainJob job_;
  RecordingObserver observer_;
};

TEST_F(TrainerTest, TrainsAndExportsAFolderThatTrainsOn) {
  const absl::StatusOr<TrainResult> result = Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->step_count, 15);
  EXPECT_EQ(observer_.step_count, 15);
  ASSERT_EQ(observer_.steps.size(), 15u);
  EXPECT_EQ(observer_.phases, (std::vector<TrainPhase>{TrainPhase::kLoading, TrainPhase::kTraining,
                                                       TrainPhase::kExporting}));
  EXPECT_NEAR(observer_.steps.front().loss, std::log(64.0), 0.5);
  EXPECT_LT(observer_.steps.back().loss, observer_.steps.front().loss - 0.3);

  // The export carries what was learned: training goes on where it ended.
  RecordingObserver second;
  TrainJob next = job_;
  next.model_path = job_.output_path;
  next.output_path = testing::TempDir() + "/second_" + name_;
  std::filesystem::remove_all(next.output_path);
  ASSERT_TRUE(trainer_.Run(next, second).ok());
  EXPECT_LT(second.steps.front().loss, observer_.steps.front().loss - 0.3);
  EXPECT_TRUE(std::filesystem::exists(job_.output_path + "/tokenizer.json"));
}

TEST_F(TrainerTest, ReportsWhatWasUsed) {
  ASSERT_TRUE(Run().ok());
  LearningRateSchedule schedule = job_.schedule;
  schedule.total_steps = 15;
  int64_t loss_tokens = 0;
  for (size_t i = 0; i < observer_.steps.size(); ++i) {
    const StepReport& step = observer_.steps[i];
    EXPECT_EQ(step.step, static_cast<int64_t>(i) + 1);
    EXPECT_EQ(step.learning_rate, LearningRate(schedule, static_cast<int64_t>(i)));
    EXPECT_GT(step.gradient_norm, 0);
    EXPECT_GE(step.duration, absl::ZeroDuration());
    EXPECT_FALSE(step.skipped);
    loss_tokens += step.loss_token_count;
  }
  int64_t trained = 0;
  for (const RowForTest& row : RandomRows(40, 12, 64, 7)) {
    for (const uint8_t flag : row.trained) {
      trained += flag;
    }
  }
  EXPECT_EQ(loss_tokens, 3 * trained);
  for (const StreamKind stream : kAllStreams) {
    const StreamFigures& figures = observer_.last_figures[static_cast<size_t>(stream)];
    // The host updates all units, none passes over the bus.
    EXPECT_EQ(figures.operation_count > 0, stream < StreamKind::kDeviceUpdate);
    absl::Duration sum = figures.busy;
    for (const absl::Duration wait : figures.waits) {
      sum += wait;
    }
    EXPECT_NEAR(absl::ToDoubleSeconds(sum), absl::ToDoubleSeconds(figures.wall), 1e-3);
  }
}

// R6: neither micro-batch order nor placement nor optimizer threads change a bit.
TEST_F(TrainerTest, PlacementChangesNoBit) {
  job_.batches.micro_batch_rows = 3;
  ASSERT_TRUE(Run().ok());
  const std::vector<std::pair<MicroBatchOrder, int>> placements = {
      {MicroBatchOrder::kMicroBatchMajor, 1}, {MicroBatchOrder::kLayerMajor, 3}};
  for (const auto& [order, slots] : placements) {
    RecordingObserver other;
    TrainJob job = job_;
    job.order = order;
    job.weight_slot_count = slots;
    job.output_path = testing::TempDir() + "/other_" + name_;
    std::filesystem::remove_all(job.output_path);
    Trainer trainer({*backend_, files_, clock_}, /*optimizer_threads=*/1);
    ASSERT_TRUE(trainer.Run(job, other).ok());
    ASSERT_EQ(other.steps.size(), observer_.steps.size());
    for (size_t i = 0; i < other.steps.size(); ++i) {
      EXPECT_EQ(other.steps[i].loss, observer_.steps[i].loss) << i;
      EXPECT_EQ(other.steps[i].gradient_norm, observer_.steps[i].gradient_norm) << i;
    }
  }
}

// R10: dividing a step into micro-batches changes its loss by rounding alone.
TEST_F(TrainerTest, MicroBatchesKeepTheLoss) {
  ASSERT_TRUE(Run().ok());
  for (const int64_t micro_rows : {1, 2, 3}) {
    RecordingObserver other;
    TrainJob job = job_;
    job.batches.micro_batch_rows = micro_rows;
    job.output_path = testing::TempDir() + "/other_" + name_;
    std::filesystem::remove_all(job.output_path);
    ASSERT_TRUE(trainer_.Run(job, other).ok());
    for (size_t i = 0; i < other.steps.size(); ++i) {
      EXPECT_NEAR(other.steps[i].loss, observer_.steps[i].loss, 1e-4) << micro_rows << " " << i;
    }
  }
}

TEST_F(TrainerTest, StopsAtAStepAndLeavesNothing) {
  observer_.stop_after = 4;
  ExpectFailure(absl::StatusCode::kCancelled, "asked to stop");
  EXPECT_GE(observer_.steps.size(), 4u);
  EXPECT_LE(observer_.steps.size(), 6u);
}

TEST_F(TrainerTest, ManyStepsThatAreNotFiniteEndTheJob) {
  job_.schedule.peak = 1e30;  // the first updates throw the weights to infinity
  job_.schedule.warmup_steps = 0;
  job_.max_gradient_norm = 0;
  job_.nonfinite_step_limit = 2;
  ExpectFailure(absl::StatusCode::kAborted, "2 steps in a row were not finite");
  ASSERT_GE(observer_.steps.size(), 2u);
  EXPECT_TRUE(observer_.steps.back().skipped);
  EXPECT_NE(observer_.log.find("was skipped"), std::string::npos);
  EXPECT_NE(observer_.log.find("row "), std::string::npos) << observer_.log;
}

TEST_F(TrainerTest, AJobThatDoesNotFitIsRefusedBeforeItAllocates) {
  job_.host_limit_bytes = 1 << 20;
  ExpectFailure(absl::StatusCode::kResourceExhausted, "does not fit the host memory: needs");
  EXPECT_TRUE(observer_.steps.empty());
}

TEST_F(TrainerTest, BadPathsAreNamed) {
  const TrainJob good = job_;
  job_.model_path = "/no/such/model";
  ExpectFailure(absl::StatusCode::kNotFound, "/no/such/model");
  job_ = good;
  job_.data_path = "/no/such/data";
  ExpectFailure(absl::StatusCode::kNotFound, "/no/such/data/manifest.json");
  job_ = good;
  std::filesystem::resize_file(job_.model_path + "/model.safetensors", 4000);
  ExpectFailure(absl::StatusCode::kDataLoss, "model.safetensors: is cut short");
}

TEST_F(TrainerTest, AnUnknownArchitectureIsNamed) {
  std::ofstream(job_.model_path + "/config.json")
      << "{\"architectures\": [\"FooForCausalLM\"], \"model_type\": \"foo\"}";
  ExpectFailure(absl::StatusCode::kUnimplemented, "FooForCausalLM");
}

TEST_F(TrainerTest, DataOfAnotherTokenizerIsRefused) {
  job_.data_path = WritePreparedData("other_" + name_, RandomRows(40, 12, 1000, 7));
  ExpectFailure(absl::StatusCode::kInvalidArgument, "vocabulary ends at 63");
}

TEST_F(TrainerTest, AnExistingOutputIsNeverTouched) {
  std::filesystem::create_directories(job_.output_path);
  const absl::Status status = Run().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_TRUE(std::filesystem::is_empty(job_.output_path));
}

// R1: load, training, saves, evaluation, resume and export stay below the plan and the largest
// unit. Not with AddressSanitizer, which keeps freed memory and its own beside it.
#ifndef ABSL_HAVE_ADDRESS_SANITIZER
TEST_F(TrainerTest, PeakMemoryStaysWithinThePlan) {
  ToyModel large{.vocab_size = 8192,
                 .hidden_size = 256,
                 .mlp_width = 768,
                 .layer_count = 6,
                 .head_count = 4,
                 .kv_head_count = 2};
  job_.model_path = WriteToyModel("large_" + name_, large);
  job_.save = {.folder = testing::TempDir() + "/checkpoints_" + name_, .every_steps = 4};
  job_.evaluation = {.split = 0.1, .every_steps = 3};
  std::filesystem::remove_all(job_.save.folder);
  ASSERT_EQ(trainer_.WarmUp(), absl::OkStatus());
  const absl::StatusOr<TrainResult> result = Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(observer_.checkpoints.size(), 3u);
  const int64_t largest_unit_bytes = large.vocab_size * large.hidden_size * 4;
  EXPECT_LE(result->peak_host_bytes, observer_.plan.host_bytes + largest_unit_bytes);
  job_.start.resume_path = job_.save.folder + "/" + observer_.checkpoints[0].id;
  job_.output_path += "_resumed";
  std::filesystem::remove_all(job_.output_path);
  RecordingObserver resumed;
  const absl::StatusOr<TrainResult> second = trainer_.Run(job_, resumed);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_LE(second->peak_host_bytes, resumed.plan.host_bytes + largest_unit_bytes);
  RecordProperty("peak_bytes", std::to_string(result->peak_host_bytes));
  RecordProperty("plan_bytes", std::to_string(observer_.plan.host_bytes));
  EXPECT_GE(result->peak_host_bytes, observer_.plan.host_bytes / 2) << "a plan far too large";
}
#endif  // ABSL_HAVE_ADDRESS_SANITIZER

}  // namespace
}  // namespace megatrain
