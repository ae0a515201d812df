// Saves of a model whose state lies on the device: training goes on as if nothing had been saved,
// and what goes on from the checkpoint has the same bits.

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/clock.h"
#include "runtime/base/posix_file_system.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/load_checkpoint.h"
#include "runtime/checkpoint/state_files.h"
#include "runtime/checkpoint/write_checkpoint.h"
#include "runtime/data/batch_reader.h"
#include "runtime/data/prepared_data.h"
#include "runtime/data/prepared_data_for_test.h"
#include "runtime/model_io/load_model.h"
#include "runtime/model_io/model_folder.h"
#include "runtime/planner/planner.h"
#include "runtime/schedule/schedule.h"
#include "runtime/trainer/cpu_backend.h"
#include "runtime/trainer/model_session.h"
#include "runtime/trainer/toy_model_for_test.h"

namespace megatrain {
namespace {

constexpr int64_t kSteps = 6;
constexpr int64_t kRowTokens = 12;
constexpr BatchOptions kBatches = {
    .batch_rows = 6, .micro_batch_rows = 2, .max_sequence_length = kRowTokens, .steps = kSteps};

class DeviceStateTest : public testing::TestWithParam<ComputeDtype> {
 protected:
  DeviceStateTest() {
    model_ = *ModelFolder::Open(WriteToyModel("device_state_model", ToyModel{}), files_);
    data_ = *PreparedData::Open(
        WritePreparedData("device_state_data", RandomRows(20, kRowTokens, 64, 7)));
    folder_ = std::string(testing::TempDir()) + "/device_state";
    std::filesystem::remove_all(folder_);
  }

  using Placement = std::function<UpdatePlacement(int unit)>;

  std::unique_ptr<ModelSession> Start(const Placement& placement, const Checkpoint* checkpoint) {
    Plan plan = PlanJob(model_->config(),
                        {.batch_rows = kBatches.batch_rows,
                         .micro_batch_rows = kBatches.micro_batch_rows,
                         .max_sequence_length = kRowTokens,
                         .compute_dtype = GetParam()},
                        {.backend = Backend::kCpu, .host_available_bytes = int64_t{1} << 40});
    auto session = *ModelSession::Create(
        model_->config(),
        {.optimizer_threads = 2, .templates = {.dtype = GetParam(), .limits = plan.limits}},
        *backend_, clock_);
    for (int unit = 0; unit <= session->layout().head_unit(); ++unit) {
      plan.pipeline.updates.push_back(placement(unit));
    }
    const absl::Status loaded = checkpoint == nullptr
                                    ? LoadModel(*model_, session->layout(), session->store())
                                    : LoadCheckpoint(*checkpoint, LoadedState::kEverything,
                                                     session->layout(), session->store(), files_);
    EXPECT_TRUE(loaded.ok()) << loaded;
    EXPECT_TRUE(session->StartPipeline(plan.pipeline, /*progress=*/{}).ok());
    if (checkpoint != nullptr) {
      session->pipeline().set_update_count(checkpoint->manifest.progress.update_count);
    }
    return session;
  }

  // Steps [first, last), each submitted while the one before updates.
  void Train(ModelSession& session, int64_t first, int64_t last) {
    BatchReader reader = *BatchReader::Create(*data_, kBatches);
    reader.Seek(first);
    for (int64_t step = first; step < last; ++step) {
      const StepBatch batch = *reader.Next();
      StepInput input{.loss_token_count = batch.loss_token_count,
                      .optimizer = {.learning_rate = 1e-2, .weight_decay = 0.1},
                      .max_gradient_norm = 1.0};
      for (const OwnedMicroBatch& micro_batch : batch.micro_batches) {
        input.micro_batches.push_back(micro_batch.View());
      }
      ASSERT_TRUE(session.pipeline().SubmitStep(std::move(input)).ok());
      ASSERT_TRUE(session.pipeline().WaitStep().ok());
    }
  }

  Checkpoint Save(ModelSession& session, int64_t step) {
    EXPECT_TRUE(session.pipeline().Drain().ok());
    CheckpointManifest manifest;
    manifest.progress = {.step = step, .update_count = session.pipeline().update_count()};
    manifest.order = {.batch_rows = 6, .micro_batch_rows = 2, .max_sequence_length = kRowTokens};
    manifest.unit_elements = UnitElements(session.layout());
    const auto written = WriteCheckpoint(session.store(), manifest, folder_, files_);
    EXPECT_TRUE(written.ok()) << written.status();
    return written->checkpoint;
  }

  static std::vector<uint32_t> Checksums(const Checkpoint& checkpoint) {
    std::vector<uint32_t> checksums;
    for (const CheckpointFile& file : checkpoint.manifest.files) {
      checksums.push_back(file.crc32c);
    }
    return checksums;
  }

  PosixFileSystem files_;
  SystemClock clock_;
  const std::unique_ptr<ComputeBackend> backend_ = MakeCpuBackend(/*compute_threads=*/1);
  std::unique_ptr<ModelFolder> model_;
  std::unique_ptr<PreparedData> data_;
  std::string folder_;
};

INSTANTIATE_TEST_SUITE_P(Dtypes, DeviceStateTest,
                         testing::Values(ComputeDtype::kFloat32, ComputeDtype::kBfloat16));

TEST_P(DeviceStateTest, ASaveIsConsistentAndTrainingGoesOn) {
  const auto host = [](int) { return UpdatePlacement::kHost; };
  const auto device = [](int) { return UpdatePlacement::kDevice; };
  const auto mixed = [](int unit) { return static_cast<UpdatePlacement>(unit % 4); };
  const auto uninterrupted = Start(host, nullptr);
  Train(*uninterrupted, 0, kSteps);
  const std::vector<uint32_t> wanted = Checksums(Save(*uninterrupted, kSteps));
  for (const Placement& placement : std::vector<Placement>{host, device, mixed}) {
    for (int64_t step = 1; step < kSteps; step += 2) {
      SCOPED_TRACE(step);
      const auto session = Start(placement, nullptr);
      Train(*session, 0, step);
      const Checkpoint checkpoint = Save(*session, step);
      EXPECT_EQ(checkpoint.manifest.progress.update_count, step);
      Train(*session, step, kSteps);
      EXPECT_EQ(Checksums(Save(*session, kSteps)), wanted);
      // Goes on elsewhere than where it was.
      const auto resumed = Start(mixed, &checkpoint);
      Train(*resumed, step, kSteps);
      EXPECT_EQ(Checksums(Save(*resumed, kSteps)), wanted);
    }
  }
}

}  // namespace
}  // namespace megatrain
