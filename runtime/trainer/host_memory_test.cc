// What a job tells of its host memory, on a device whose pinner refuses at some point: processors,
// with a count of what is pinned.

#include "runtime/trainer/host_memory.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/clock.h"
#include "runtime/base/posix_file_system.h"
#include "runtime/config/model_config.h"
#include "runtime/config/shapes.h"
#include "runtime/data/prepared_data_for_test.h"
#include "runtime/hoststore/page_pinner.h"
#include "runtime/model/layer_template.h"
#include "runtime/pipeline/pipeline_options.h"
#include "runtime/planner/machine.h"
#include "runtime/planner/planner.h"
#include "runtime/trainer/compute_backend.h"
#include "runtime/trainer/cpu_backend.h"
#include "runtime/trainer/job_progress.h"
#include "runtime/trainer/model_session.h"
#include "runtime/trainer/recording_observer.h"
#include "runtime/trainer/toy_model_for_test.h"
#include "runtime/trainer/trainer.h"
#include "runtime/trainer/watchdog.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// Takes so many calls and refuses all others.
class RefusingPinner final : public PagePinner {
 public:
  absl::Status Pin(void*, int64_t) override {
    if (open == limit) {
      return absl::ResourceExhaustedError("no more pages for you");
    }
    ++open;
    return absl::OkStatus();
  }
  void Unpin(void*) override { --open; }

  int limit = 0;
  int open = 0;
};

class PinningBackend final : public ComputeBackend {
 public:
  Backend kind() const override { return cpu_->kind(); }
  absl::StatusOr<std::unique_ptr<Device>> MakeDevice(Clock& clock) override {
    return cpu_->MakeDevice(clock);
  }
  std::unique_ptr<DeviceMath> MakeMath() override { return cpu_->MakeMath(); }
  absl::StatusOr<std::unique_ptr<ModelTemplates>> MakeTemplates(
      const ModelConfig& config, const ModelLayout& layout,
      const TemplateOptions& options) override {
    if (options.log != nullptr) {
      options.log("templates are made");
    }
    return cpu_->MakeTemplates(config, layout, options);
  }
  PagePinner* pinner() override { return &refusing; }
  absl::StatusOr<DeviceMemory> ReadDeviceMemory() override { return cpu_->ReadDeviceMemory(); }
  std::string DeviceName() override { return cpu_->DeviceName(); }

  RefusingPinner refusing;

 private:
  const std::unique_ptr<ComputeBackend> cpu_ = MakeCpuBackend(/*compute_threads=*/1);
};

class HostMemoryTest : public ::testing::Test {
 protected:
  // Trains the toy model; the pinner takes so many calls: a plane of it is one.
  std::vector<StepReport> Train(int pinned_planes, PinMode pin = PinMode::kAuto) {
    const std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    TrainJob job;
    job.model_path = WriteToyModel("model_" + name, ToyModel{});
    job.data_path = WritePreparedData("data_" + name, RandomRows(16, 12, 64, 7));
    job.output_path = ::testing::TempDir() + "/output_" + name;
    std::filesystem::remove_all(job.output_path);
    job.batches = {.batch_rows = 8, .max_sequence_length = 12, .epochs = 2};
    job.schedule = {.shape = LearningRateShape::kConstant, .peak = 3e-3};
    job.pin = pin;
    backend_.refusing.limit = pinned_planes;
    Trainer trainer({backend_, files_, clock_}, /*optimizer_threads=*/2);
    RecordingObserver observer;
    status_ = trainer.Run(job, observer).status();
    log_ = observer.log;
    EXPECT_EQ(backend_.refusing.open, 0) << "all is given back";
    return observer.steps;
  }

  PosixFileSystem files_;
  SystemClock clock_;
  PinningBackend backend_;
  std::string log_;
  absl::Status status_;
};

TEST_F(HostMemoryTest, WhatWasPreparedAndPinnedIsInTheLog) {
  Train(/*pinned_planes=*/3);
  EXPECT_TRUE(status_.ok()) << status_;
  EXPECT_THAT(log_, ContainsRegex("host memory: [0-9.]+ [KM]iB prepared in [0-9.]+ s, .*pages"));
  EXPECT_THAT(log_, ContainsRegex("host memory: [0-9.]+ [KM]iB, all that crosses the bus, pinned "
                                  "in [0-9.]+ s, limit on locked memory \\(RLIMIT_MEMLOCK\\): "));
  EXPECT_THAT(log_, Not(HasSubstr("refused")));
}

TEST_F(HostMemoryTest, WhatTheBackendDoesBeforeIsInTheLog) {
  Train(/*pinned_planes=*/3);
  EXPECT_THAT(log_, ContainsRegex("templates are made\nhost memory: [0-9.]+ [KM]iB prepared"));
}

TEST_F(HostMemoryTest, ARefusedPinCostsBandwidthAndNoBit) {
  const std::vector<StepReport> pinned = Train(/*pinned_planes=*/3);
  for (const int planes : {0, 1, 2}) {
    const std::vector<StepReport> pageable = Train(planes);
    EXPECT_TRUE(status_.ok()) << status_;
    EXPECT_THAT(log_,
                AllOf(ContainsRegex("that cross the bus pinned in [0-9.]+ s, limit on locked"),
                      HasSubstr("then refused: no more pages for you; the rest crosses at "),
                      ContainsRegex("at [0-9.]+ GB/s instead of [0-9.]+ GB/s")));
    ASSERT_EQ(pageable.size(), pinned.size());
    for (size_t i = 0; i < pinned.size(); ++i) {
      EXPECT_EQ(pageable[i].loss, pinned[i].loss) << i;
    }
  }
}

TEST_F(HostMemoryTest, WithSlabsNothingIsPinnedAndNoBitChanges) {
  const std::vector<StepReport> pinned = Train(/*pinned_planes=*/3);
  const std::vector<StepReport> pageable = Train(/*pinned_planes=*/0, PinMode::kSlabs);
  EXPECT_TRUE(status_.ok()) << status_;
  EXPECT_THAT(log_, ContainsRegex("stays pageable, as placement.pin says; it crosses through "
                                  "[0-9.]+ [KM]iB of slabs, at [0-9.]+ GB/s instead of"));
  EXPECT_THAT(log_, Not(HasSubstr("refused")));
  ASSERT_EQ(pageable.size(), pinned.size());
  for (size_t i = 0; i < pinned.size(); ++i) {
    EXPECT_EQ(pageable[i].loss, pinned[i].loss) << i;
  }
}

TEST_F(HostMemoryTest, ActivationsThatAreNotPinnedAreToldOf) {
  const ModelConfig config = ShapeByName("tiny").value();
  Plan plan = PlanJob(config, {.batch_rows = 2, .max_sequence_length = 8},
                      {.backend = Backend::kCpu, .host_available_bytes = int64_t{1} << 40});
  const auto session =
      *ModelSession::Create(config,
                            {.optimizer_threads = 1,
                             .templates = {.dtype = ComputeDtype::kFloat32, .limits = plan.limits}},
                            backend_, clock_);
  plan.pipeline.boundary_on_host.assign(session->layout().units.size(), true);
  RecordingObserver observer;
  Watchdog watchdog(clock_, absl::Hours(1), /*on_stall=*/[](const std::string&) {});
  JobProgress progress(clock_, observer, watchdog);
  const absl::Status status = StartPipeline(*session, plan.pipeline, progress);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(observer.log,
              ContainsRegex("host memory for activations: 0.0 MiB of the [0-9.]+ MiB for them "
                            "pinned in [0-9.]+ s; then refused: no more pages for you; the rest "
                            "crosses through slabs"));
}

TEST_F(HostMemoryTest, AJobThatInsistsOnPinnedMemoryEndsWithoutIt) {
  EXPECT_FALSE(Train(/*pinned_planes=*/3, PinMode::kFull).empty());
  EXPECT_TRUE(status_.ok()) << status_;
  EXPECT_TRUE(Train(/*pinned_planes=*/2, PinMode::kFull).empty());
  EXPECT_EQ(status_.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status_.message(),
            "no more pages for you; with placement.pin auto or slabs the job would go on");
}

}  // namespace
}  // namespace megatrain
