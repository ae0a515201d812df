// The plan against what a job takes, on processors: random models, steps and placements.

#include <memory>
#include <random>
#include <string>
#include <utility>

#include "absl/base/config.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "runtime/benchmark/random_model.h"
#include "runtime/config/shapes.h"
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
  shape.max_sequence_length = one_of({2, 17, 64, 128});
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

// Trains a step or two and gives the memory back.
absl::Status RunSteps(const Case& job, const Plan& plan, ComputeBackend& backend, Clock& clock) {
  auto session = ModelSession::Create(job.config,
                                      {.optimizer_threads = 2,
                                       .templates = {.dtype = job.shape.compute_dtype,
                                                     .attention = AttentionMode::kFast,
                                                     .limits = plan.limits}},
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
  EXPECT_LE(pipeline.device_bytes(), plan.device_bytes);
  EXPECT_EQ(SizeOf(plan, "device_arena"), plan.device_bytes);
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
    const Plan plan = PlanJob(job.config, job.shape,
                              {.backend = Backend::kCpu,
                               .host_available_bytes = int64_t{4} << 30,
                               .device_memory_bytes = 0,
                               .engine_baseline_bytes = baseline_bytes,
                               .speeds = {}});
    ASSERT_TRUE(plan.fits) << plan.verdict;
    ASSERT_TRUE(ResetPeakResident().ok());
    ASSERT_EQ(RunSteps(job, plan, *backend, clock), absl::OkStatus());
#ifndef ABSL_HAVE_ADDRESS_SANITIZER  // which has memory of its own
    EXPECT_LE(ReadProcessMemory("").value().peak_resident_bytes, plan.host_bytes);
#endif
  }
}

}  // namespace
}  // namespace megatrain
