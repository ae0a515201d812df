// The plan against what a job takes, on processors: random models, steps and placements.

#include <memory>
#include <random>
#include <string>
#include <utility>

#include "absl/base/config.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "runtime/benchmark/random_model.h"
#include "runtime/config/model_layout.h"
#include "runtime/config/shapes.h"
#include "runtime/hoststore/host_store.h"
#include "runtime/hoststore/pinned_arena.h"
#include "runtime/pipeline/device_memory.h"
#include "runtime/pipeline/pipeline_options.h"
#include "runtime/planner/machine.h"
#include "runtime/planner/planner.h"
#include "runtime/trainer/cpu_backend.h"
#include "runtime/trainer/model_session.h"
#include "runtime/trainer/warm_up.h"

namespace megatrain {
namespace {

constexpr int kCases = 200;
constexpr uint64_t kSeed = 20240601;

// What heaps of threads and their last pages take beside what a plan counts.
constexpr int64_t kHeapBytes = int64_t{2} << 20;

struct Case {
  ModelConfig config;
  JobShape shape;
};

Case Draw(std::mt19937_64& random) {
  const auto one_of = [&](std::initializer_list<int64_t> values) {
    return values.begin()[random() % values.size()];
  };
  Case result;
  ModelConfig& config = result.config;
  config = ShapeByName("tiny").value();
  config.vocab_size = one_of({64, 500, 2048});
  config.kv_head_count = one_of({1, 2});
  config.head_count = config.kv_head_count * one_of({1, 2, 3});
  config.head_dim = one_of({16, 32, 64});
  config.hidden_size = one_of({48, 64, 160});
  config.mlp_width = one_of({64, 200, 512});
  config.layer_count = one_of({1, 2, 3, 5});
  config.layer_uses_window.assign(config.layer_count, false);
  config.tied = random() % 2 == 0;
  config.qkv_bias = random() % 2 == 0;
  JobShape& shape = result.shape;
  shape.batch_rows = one_of({1, 2, 5, 8});
  shape.micro_batch_rows = one_of({0, 1, 2, 3});
  shape.max_sequence_length = one_of({2, 17, 64});
  shape.compute_dtype = random() % 2 == 0 ? ComputeDtype::kFloat32 : ComputeDtype::kBfloat16;
  shape.weight_slot_count = static_cast<int>(one_of({0, 1, 3}));
  shape.resident_weights = random() % 4 == 0;
  shape.pin = random() % 3 == 0 ? PinMode::kSlabs : PinMode::kAuto;
  if (random() % 2 == 0) {
    shape.order =
        random() % 2 == 0 ? MicroBatchOrder::kLayerMajor : MicroBatchOrder::kMicroBatchMajor;
  }
  return result;
}

int64_t SizeOf(const Plan& plan, const std::string& kind) {
  for (const MemoryItem& item : plan.host) {
    if (item.kind == kind) {
      return item.size_bytes;
    }
  }
  ADD_FAILURE() << "no item " << kind;
  return 0;
}

// What a planner for processors leaves out: where units are updated, and what layers keep and where
// it waits. Templates for processors keep nothing, but the memory and its copies are there.
void DrawPlacement(std::mt19937_64& random, int unit_count, PipelineOptions& options) {
  const auto draw = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<uint64_t>(high - low + 1));
  };
  constexpr UpdatePlacement kUpdates[] = {
      UpdatePlacement::kHost, UpdatePlacement::kDevice, UpdatePlacement::kOverBus,
      UpdatePlacement::kOverBusKeptGradient, UpdatePlacement::kOverBusResident};
  const bool host_updates_all = draw(0, 3) == 0;
  const bool stashes = options.order == MicroBatchOrder::kLayerMajor && draw(0, 3) > 0;
  for (int unit = 0; unit < unit_count; ++unit) {
    options.updates.push_back(host_updates_all ? UpdatePlacement::kHost : kUpdates[draw(0, 4)]);
    options.keep.push_back(static_cast<KeepLevel>(draw(0, kKeepLevelCount - 1)));
    options.boundary_on_host.push_back(stashes && draw(0, 2) > 0);
    options.kept_on_host.push_back(stashes && draw(0, 2) > 0);
  }
  options.kept_token_bytes = {0, 64, 256, 1024, 2048};
  for (int i = 0; i < options.max_micro_batches; ++i) {
    options.kept_places.push_back(static_cast<KeptPlace>(draw(0, 2)));
  }
  options.state_chunk_elements = int64_t{kTensorAlignmentElements} << draw(4, 12);
  options.staging_slot_count = draw(1, 4);
  options.stash_slot_count = draw(1, 5);
}

// Bytes of the host that a plan counts under the same job's other placement.
int64_t HostBytesUnder(const Plan& plan, const ModelLayout& layout) {
  const DeviceMemoryMap map = MapDeviceMemory(layout, plan.pipeline);
  const int64_t gradient_bytes = HostStore::GradientBytes(
      layout, {.gradient_bytes = static_cast<int>(SizeBytes(plan.pipeline.compute_dtype)),
               .gradients = HostGradients(plan.pipeline)});
  return plan.host_bytes - SizeOf(plan, "gradients") - plan.device_bytes + gradient_bytes +
         map.bytes.total() + PinnedArena::Bytes(map.host_parts);
}

// Trains a step or two and gives the memory back.
absl::Status RunSteps(const Case& job, const Plan& plan, ComputeBackend& backend, Clock& clock) {
  auto session = ModelSession::Create(job.config,
                                      {.optimizer_threads = 2,
                                       .templates = {.dtype = job.shape.compute_dtype,
                                                     .attention = AttentionMode::kFast,
                                                     .limits = plan.limits},
                                       .host_gradients = HostGradients(plan.pipeline)},
                                      backend, clock);
  if (!session.ok()) {
    return session.status();
  }
  FillRandomWeights((*session)->layout(), kSeed, (*session)->pool(), (*session)->store());
  if (absl::Status started = (*session)->StartPipeline(plan.pipeline, /*progress=*/{});
      !started.ok()) {
    return started;
  }
  StepPipeline& pipeline = (*session)->pipeline();
  EXPECT_EQ(pipeline.device_bytes(),
            MapDeviceMemory((*session)->layout(), plan.pipeline).bytes.total());
  const int64_t row_tokens = job.shape.max_sequence_length;
  const auto batch = RandomStep({.tokens = job.shape.batch_rows * row_tokens,
                                 .sequence_length = row_tokens,
                                 .micro_batch_tokens = plan.micro_batch_rows * row_tokens},
                                job.config.vocab_size, kSeed);
  if (!batch.ok()) {
    return batch.status();
  }
  for (int step = 0; step < 2; ++step) {
    StepInput input{.loss_token_count = batch->loss_token_count,
                    .optimizer = {.learning_rate = 1e-3},
                    .max_gradient_norm = 1.0};
    for (const OwnedMicroBatch& micro_batch : batch->micro_batches) {
      input.micro_batches.push_back(micro_batch.View());
    }
    if (absl::Status submitted = pipeline.SubmitStep(std::move(input)); !submitted.ok()) {
      return submitted;
    }
    if (const auto result = pipeline.WaitStep(); !result.ok()) {
      return result.status();
    }
  }
  return pipeline.Drain();
}

TEST(PlanMemoryTest, NoPlanIsBelowWhatItsJobTakes) {
  SystemClock clock;
  const auto backend = MakeCpuBackend(1);
  ASSERT_TRUE(WarmUpLibraries(*backend, 2, clock).ok());
  std::mt19937_64 random(kSeed);
  for (int i = 0; i < kCases; ++i) {
    const Case job = Draw(random);
    SCOPED_TRACE(absl::StrCat("case ", i, " of seed ", kSeed));
    const int64_t baseline_bytes = ReadProcessMemory("").value().resident_bytes;
    Plan plan = PlanJob(job.config, job.shape,
                        {.backend = Backend::kCpu,
                         .host_available_bytes = int64_t{4} << 30,
                         .device_memory_bytes = 0,
                         .engine_baseline_bytes = baseline_bytes,
                         .speeds = {}});
    ASSERT_TRUE(plan.fits) << plan.verdict;
    EXPECT_EQ(SizeOf(plan, "device_arena"), plan.device_bytes);
    const ModelLayout layout = MakeModelLayout(job.config);
    EXPECT_EQ(HostBytesUnder(plan, layout), plan.host_bytes);
    DrawPlacement(random, static_cast<int>(layout.units.size()), plan.pipeline);
    // Without what is for the model's files, of which this job reads none: it would hide much.
    [[maybe_unused]] const int64_t drawn_bytes =
        HostBytesUnder(plan, layout) - SizeOf(plan, "io_buffers") + kHeapBytes;
    ASSERT_TRUE(ResetPeakResident().ok());
    ASSERT_EQ(RunSteps(job, plan, *backend, clock), absl::OkStatus());
#ifndef ABSL_HAVE_ADDRESS_SANITIZER  // which has memory of its own
    EXPECT_LE(ReadProcessMemory("").value().peak_resident_bytes, drawn_bytes);
#endif
  }
}

}  // namespace
}  // namespace megatrain
