// A pipeline with all that it stands on, for its tests.

#ifndef RUNTIME_PIPELINE_PIPELINE_RIG_FOR_TEST_H_
#define RUNTIME_PIPELINE_PIPELINE_RIG_FOR_TEST_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/clock.h"
#include "runtime/config/model_layout.h"
#include "runtime/device/cpu_device.h"
#include "runtime/device/device.h"
#include "runtime/hoststore/host_store.h"
#include "runtime/hoststore/page_pinner.h"
#include "runtime/optimizer/optimizer_pool.h"
#include "runtime/pipeline/counting_templates.h"
#include "runtime/pipeline/host_math.h"
#include "runtime/pipeline/pipeline_options.h"
#include "runtime/pipeline/placements_for_test.h"
#include "runtime/pipeline/small_training.h"
#include "runtime/pipeline/step_pipeline.h"

namespace megatrain {

inline Clock& TestClock() {
  static SystemClock clock;
  return clock;
}

struct Rig {
  // Cuts every unit into several chunks, some of which begin inside a tensor.
  static constexpr int64_t kChunkElements = 192;

  explicit Rig(const Placement& p, std::unique_ptr<Device> device_in, PagePinner* pinner = nullptr)
      : layout(SmallLayout(p.tied)),
        device(std::move(device_in)),
        store(SmallStore(layout, p.dtype, HostGradients({.updates = p.updates}))),
        templates(layout, p.dtype),
        pool(p.threads) {
    auto created = StepPipeline::Create({*device, math, *store, templates, pool, pinner}, layout,
                                        {.order = p.order,
                                         .weight_slot_count = p.weight_slots,
                                         .gradient_slot_count = p.gradient_slots,
                                         .resident_weights = p.resident,
                                         .updates = p.updates,
                                         .state_chunk_elements = kChunkElements,
                                         .staging_slot_count = p.staging_slots,
                                         .keep = p.keep,
                                         .boundary_on_host = p.boundary_on_host,
                                         .kept_on_host = p.kept_on_host,
                                         .kept_places = p.kept_places,
                                         .stash_slot_count = p.stash_slots,
                                         .fold_stash_layers = p.fold_stash_layers,
                                         .pin = p.pin,
                                         .slab_bytes = p.slab_bytes,
                                         .compute_dtype = p.dtype,
                                         .max_micro_batch_tokens = kSmallMicroBatchTokens,
                                         .max_step_tokens = kSmallStepTokens,
                                         .max_micro_batches = kSmallMicroBatches,
                                         .workspace_bytes = CountingTemplates::kWorkspaceBytes,
                                         .kept_token_bytes = {0, 32, 32, 32, 32}});
    EXPECT_TRUE(created.ok()) << created.status();
    pipeline = *std::move(created);
  }

  explicit Rig(const Placement& p) : Rig(p, std::make_unique<CpuDevice>(TestClock())) {}

  // Submits every step `ahead` steps before it takes a result.
  SmallOutcome Train(const std::vector<SmallStep>& steps, size_t ahead) {
    SmallOutcome outcome;
    size_t submitted = 0;
    for (size_t taken = 0; taken < steps.size(); ++taken) {
      while (submitted < steps.size() && submitted <= taken + ahead) {
        const absl::Status status = pipeline->SubmitStep(steps[submitted++].Input());
        EXPECT_TRUE(status.ok()) << status;
      }
      const auto result = pipeline->WaitStep();
      EXPECT_TRUE(result.ok()) << result.status();
      if (!result.ok()) {
        return outcome;
      }
      EXPECT_TRUE(result->finite);
      outcome.losses.push_back(result->loss);
      outcome.gradient_norms.push_back(result->gradient_norm);
    }
    EXPECT_TRUE(pipeline->Drain().ok());
    outcome.trained_bytes = TrainedBytes(layout, *store);
    return outcome;
  }

  const ModelLayout layout;
  std::unique_ptr<Device> device;
  HostMath math;
  std::unique_ptr<HostStore> store;
  CountingTemplates templates;
  OptimizerPool pool;
  std::unique_ptr<StepPipeline> pipeline;
};

inline void ExpectEqual(const SmallOutcome& outcome, const SmallOutcome& expected) {
  EXPECT_EQ(outcome.losses, expected.losses);
  EXPECT_EQ(outcome.gradient_norms, expected.gradient_norms);
  EXPECT_TRUE(outcome.trained_bytes == expected.trained_bytes) << "weights or moments differ";
}

}  // namespace megatrain

#endif  // RUNTIME_PIPELINE_PIPELINE_RIG_FOR_TEST_H_
