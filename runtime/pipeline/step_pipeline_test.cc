#include "runtime/pipeline/step_pipeline.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/clock.h"
#include "runtime/device/cpu_device.h"
#include "runtime/device/virtual_device.h"
#include "runtime/hoststore/page_pinner.h"
#include "runtime/hoststore/split_float.h"
#include "runtime/pipeline/counting_templates.h"
#include "runtime/pipeline/host_math.h"
#include "runtime/pipeline/placements_for_test.h"
#include "runtime/pipeline/small_training.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

constexpr auto kHost = UpdatePlacement::kHost;
constexpr auto kDevice = UpdatePlacement::kDevice;
constexpr auto kOverBus = UpdatePlacement::kOverBus;
constexpr auto kOverBusResident = UpdatePlacement::kOverBusResident;

// Cuts every unit into several chunks, some of which begin inside a tensor.
constexpr int64_t kChunkElements = 192;

Clock& TestClock() {
  static SystemClock clock;
  return clock;
}

// A pipeline with all that it stands on.
struct Rig {
  explicit Rig(const Placement& p, std::unique_ptr<Device> device_in, PagePinner* pinner = nullptr)
      : layout(SmallLayout(p.tied)),
        device(std::move(device_in)),
        store(SmallStore(layout, p.dtype)),
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
                                         .compute_dtype = p.dtype,
                                         .max_micro_batch_tokens = kSmallMicroBatchTokens,
                                         .max_step_tokens = kSmallStepTokens,
                                         .max_micro_batches = kSmallMicroBatches,
                                         .workspace_bytes = CountingTemplates::kWorkspaceBytes,
                                         .kept_token_bytes = {0, 32, 32, 32}});
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

// Operations that have updated so far; with each step's norm.
int64_t UpdateCount(const Rig& rig) {
  const auto figures = rig.pipeline->Figures();
  int64_t count = 0;
  for (const StreamKind stream :
       {StreamKind::kOptimizer, StreamKind::kDeviceUpdate, StreamKind::kStateUpdate}) {
    count += figures[static_cast<int>(stream)].operation_count;
  }
  return count;
}

void ExpectEqual(const SmallOutcome& outcome, const SmallOutcome& expected) {
  EXPECT_EQ(outcome.losses, expected.losses);
  EXPECT_EQ(outcome.gradient_norms, expected.gradient_norms);
  EXPECT_TRUE(outcome.trained_bytes == expected.trained_bytes) << "weights or moments differ";
}

TEST(StepPipelineTest, EveryPlacementEqualsPlainLoopsInEveryBit) {
  const std::vector<SmallStep> steps = SmallSteps(/*seed=*/1, 6);
  for (const Placement& placement : AllPlacements()) {
    SCOPED_TRACE(Describe(placement));
    const SmallOutcome expected = TrainInPlainLoops(placement.tied, placement.dtype, steps);
    Rig rig(placement);
    ExpectEqual(rig.Train(steps, /*ahead=*/1), expected);
  }
}

TEST(StepPipelineTest, TrainingLearns) {
  std::vector<SmallStep> steps(60, SmallSteps(/*seed=*/2, 1).front());
  const SmallOutcome outcome = TrainInPlainLoops(false, ComputeDtype::kFloat32, steps);
  EXPECT_LT(outcome.losses.back(), 0.1 * outcome.losses.front());
}

// The schedule simulation: operations of random length in virtual time, freed slots poisoned.
TEST(StepPipelineTest, EveryOrderOfOperationsGivesTheSameBits) {
  constexpr uint32_t kFirstSeed = 100;
  std::cout << "first seed " << kFirstSeed << "\n";
  const std::vector<SmallStep> steps = SmallSteps(/*seed=*/3, 4);
  uint32_t seed = kFirstSeed;
  for (const Placement& placement : AllPlacements()) {
    const SmallOutcome expected = TrainInPlainLoops(placement.tied, placement.dtype, steps);
    for (const size_t ahead : {0, 1, 3}) {
      SCOPED_TRACE(Describe(placement) + " seed " + std::to_string(seed));
      Rig rig(placement, std::make_unique<VirtualDevice>(seed++));
      ExpectEqual(rig.Train(steps, ahead), expected);
      for (const StreamFigures& figures : rig.pipeline->Figures()) {
        absl::Duration sum = figures.busy;
        for (const absl::Duration wait : figures.waits) {
          sum += wait;
        }
        EXPECT_EQ(sum, figures.wall);
      }
    }
  }
}

TEST(StepPipelineTest, AnyMixOfActivationsOnTheHostGivesTheSameBits) {
  constexpr uint32_t kSeed = 20261130;
  std::cout << "seed " << kSeed << "\n";
  std::mt19937 random(kSeed);
  const std::vector<SmallStep> steps = SmallSteps(/*seed=*/13, 4);
  std::map<std::pair<bool, ComputeDtype>, SmallOutcome> expected;
  for (const bool tied : {false, true}) {
    for (const auto dtype : {ComputeDtype::kFloat32, ComputeDtype::kBfloat16}) {
      expected[{tied, dtype}] = TrainInPlainLoops(tied, dtype, steps);
    }
  }
  for (int i = 0; i < 150; ++i) {
    const Placement placement = RandomPlacement(random);
    const uint32_t seed = random();
    SCOPED_TRACE(Describe(placement) + " seed " + std::to_string(seed));
    Rig rig(placement, std::make_unique<VirtualDevice>(seed));
    ExpectEqual(rig.Train(steps, /*ahead=*/i % 3), expected[{placement.tied, placement.dtype}]);
  }
}

// Takes so many calls and refuses all others.
class RefusingPinner final : public PagePinner {
 public:
  explicit RefusingPinner(int limit) : limit_(limit) {}

  absl::Status Pin(void*, int64_t) override {
    if (open_ == limit_) {
      return absl::ResourceExhaustedError("full");
    }
    ++open_;
    return absl::OkStatus();
  }
  void Unpin(void*) override { --open_; }

 private:
  const int limit_;
  int open_ = 0;
};

TEST(StepPipelineTest, ActivationsThatAreNotPinnedGoThroughSlabs) {
  const std::vector<SmallStep> steps = SmallSteps(/*seed=*/15, 4);
  const Placement placement = {.keep = std::vector<KeepLevel>(6, KeepLevel::kAll),
                               .boundary_on_host = std::vector<bool>(6, true),
                               .kept_on_host = std::vector<bool>(6, true),
                               .stash_slots = 2};
  const SmallOutcome expected = TrainInPlainLoops(placement.tied, placement.dtype, steps);
  for (const int limit : {0, 1}) {
    RefusingPinner pinner(limit);
    Rig rig(placement, std::make_unique<CpuDevice>(TestClock()), &pinner);
    const StepPipeline::HostActivations host = rig.pipeline->host_activations();
    EXPECT_EQ(host.refusal.ok(), limit == 1);
    EXPECT_GT(host.size_bytes, 0);
    EXPECT_EQ(host.pinned_bytes, limit == 1 ? host.size_bytes : 0);
    EXPECT_EQ(rig.pipeline->uses_slabs(), limit == 0);
    EXPECT_GE(rig.pipeline->host_bytes(), host.size_bytes);
    ExpectEqual(rig.Train(steps, /*ahead=*/1), expected);
  }
}

// As a folded host store: for speed alone.
TEST(StepPipelineTest, FoldedStashesTakeLessMemoryAndStayFinite) {
  const std::vector<SmallStep> steps = SmallSteps(/*seed=*/14, 3);
  Placement placement = {.keep = std::vector<KeepLevel>(6, KeepLevel::kAll),
                         .boundary_on_host = std::vector<bool>(6, true),
                         .kept_on_host = std::vector<bool>(6, true)};
  const Rig plain(placement);
  placement.fold_stash_layers = 1;
  Rig folded(placement);
  const SmallOutcome outcome = folded.Train(steps, /*ahead=*/1);
  EXPECT_EQ(outcome.losses.size(), steps.size());
  EXPECT_TRUE(std::isfinite(outcome.losses.back()));
  EXPECT_LT(folded.pipeline->host_bytes(), plain.pipeline->host_bytes() / 2);
}

// The second step's first operation runs while units are still to be updated, wherever that is
// done.
TEST(StepPipelineTest, UpdatesRunWhileTheNextForwardDoes) {
  const std::vector<SmallStep> steps = SmallSteps(/*seed=*/4, 2);
  for (const UpdatePlacement placement : {kHost, kDevice, kOverBus, kOverBusResident}) {
    int overlapped = 0;
    for (uint32_t seed = 0; seed < 20; ++seed) {
      Rig rig({.weight_slots = 3, .updates = std::vector<UpdatePlacement>(6, placement)},
              std::make_unique<VirtualDevice>(seed));
      int64_t updates = -1;  // when the second step began
      int embeddings = 0;
      rig.templates.set_observer([&](int unit) {
        if (unit == 0 && ++embeddings == 2 * static_cast<int>(steps[0].micro_batches.size()) + 1) {
          updates = UpdateCount(rig);
        }
        return absl::OkStatus();
      });
      rig.Train(steps, /*ahead=*/1);
      ASSERT_GT(updates, 0);
      overlapped += updates < UpdateCount(rig) / 2 ? 1 : 0;
    }
    EXPECT_GT(overlapped, 0) << static_cast<int>(placement);
  }
}

TEST(StepPipelineTest, SubmittingNeverBlocks) {
  const std::vector<SmallStep> steps = SmallSteps(/*seed=*/5, 3);
  Rig rig({});
  Mutex gate;
  rig.templates.set_observer([&gate](int) {
    MutexLock lock(&gate);
    return absl::OkStatus();
  });
  {
    MutexLock lock(&gate);  // no template can run
    for (const SmallStep& step : steps) {
      ASSERT_TRUE(rig.pipeline->SubmitStep(step.Input()).ok());
    }
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_TRUE(rig.pipeline->WaitStep().ok());
  }
  EXPECT_EQ(rig.pipeline->WaitStep().status().code(), absl::StatusCode::kFailedPrecondition);
}

// True when the process may read that address.
bool CanRead(const void* address) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const ssize_t written = write(ends[1], address, 1);
  const bool fault = written < 0 && errno == EFAULT;
  EXPECT_TRUE(written == 1 || fault);
  close(ends[0]);
  close(ends[1]);
  return !fault;
}

TEST(StepPipelineTest, ComputeNeverSeesTheHostStore) {
  // The store of every test here is protected, so an access outside h2d, d2h and update would end
  // the process. What is left to show: none of these holds its access while a template runs.
  const std::vector<SmallStep> steps = SmallSteps(/*seed=*/6, 3);
  for (const auto order : {MicroBatchOrder::kLayerMajor, MicroBatchOrder::kMicroBatchMajor}) {
    Rig rig({.order = order, .weight_slots = 1});
    int calls = 0;
    rig.templates.set_observer([&](int unit) {
      ++calls;
      EXPECT_FALSE(CanRead(rig.store->hi(unit)));
      EXPECT_FALSE(CanRead(rig.store->lo(unit)));
      EXPECT_FALSE(CanRead(rig.store->moment1(unit)));
      EXPECT_FALSE(CanRead(rig.store->moment2(unit)));
      EXPECT_FALSE(CanRead(rig.store->gradient(unit)));
      return absl::OkStatus();
    });
    rig.Train(steps, /*ahead=*/1);
    EXPECT_GT(calls, 50);
    const auto access = rig.store->BeginAccess(1);
    EXPECT_TRUE(CanRead(rig.store->hi(1)));
  }
}

TEST(StepPipelineTest, NormIsThatOfTheGradientPlane) {
  const std::vector<SmallStep> steps = SmallSteps(/*seed=*/7, 1);
  Rig rig({.tied = true});
  ASSERT_TRUE(rig.pipeline->SubmitStep(steps[0].Input()).ok());
  const auto result = rig.pipeline->WaitStep();
  ASSERT_TRUE(result.ok());
  ASSERT_TRUE(rig.pipeline->Drain().ok());
  double squares = 0;
  for (int unit = 0; unit < rig.store->unit_count(); ++unit) {
    const auto access = rig.store->BeginAccess(unit);
    const float* gradient = static_cast<const float*>(rig.store->gradient(unit));
    for (int64_t i = 0; i < rig.layout.units[unit].element_count; ++i) {
      squares += double{gradient[i]} * gradient[i];
    }
  }
  EXPECT_NEAR(result->gradient_norm, std::sqrt(squares), 1e-12 * std::sqrt(squares));
  EXPECT_DOUBLE_EQ(result->clip_coefficient, 0.05 / (result->gradient_norm + 1e-6));
}

TEST(StepPipelineTest, ClipsOnlyWhatIsTooLong) {
  std::vector<SmallStep> steps = SmallSteps(/*seed=*/7, 2);
  steps[0].max_gradient_norm = 1e6;
  steps[1].max_gradient_norm = 0;
  Rig rig({});
  for (const SmallStep& step : steps) {
    ASSERT_TRUE(rig.pipeline->SubmitStep(step.Input()).ok());
    EXPECT_EQ(rig.pipeline->WaitStep()->clip_coefficient, 1.0);
  }
}

void SetWeight(Rig& rig, int unit, int64_t element, float value) {
  const auto access = rig.store->BeginAccess(unit);
  const SplitFloat split = Split(value);
  rig.store->hi(unit)[element] = split.hi;
  rig.store->lo(unit)[element] = split.lo;
}

// Two micro-batches of three documents, whose last one alone holds token 6.
SmallStep ThreeDocuments() {
  return {.micro_batches = {{.tokens = {1, 2, 3},
                             .positions = {0, 1, 2},
                             .document_offsets = {0, 3},
                             .loss_positions = {0, 1},
                             .loss_targets = {2, 3}},
                            {.tokens = {4, 5, 6, 7, 8},
                             .positions = {0, 1, 0, 1, 2},
                             .document_offsets = {0, 2, 5},
                             .loss_positions = {0, 2, 3},
                             .loss_targets = {5, 7, 8}}}};
}

// A step that `break_it` makes fail leaves no trace: after `repair` training goes on as if the
// step had not been.
StepResult ExpectSkipped(const Placement& placement, const std::function<void(Rig&)>& break_it,
                         const std::function<void(Rig&)>& repair) {
  Rig rig(placement);
  break_it(rig);
  const std::string before = TrainedBytes(rig.layout, *rig.store);
  const SmallStep broken = ThreeDocuments();
  EXPECT_TRUE(rig.pipeline->SubmitStep(broken.Input()).ok());
  const auto result = rig.pipeline->WaitStep();
  EXPECT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(rig.pipeline->Drain().ok());
  EXPECT_FALSE(result->finite);
  EXPECT_TRUE(TrainedBytes(rig.layout, *rig.store) == before) << "a skipped step left traces";

  repair(rig);
  const std::vector<SmallStep> next = SmallSteps(/*seed=*/8, 2);
  ExpectEqual(rig.Train(next, 0), TrainInPlainLoops(placement.tied, placement.dtype, next));
  return *result;
}

// ExpectSkipped with an infinity in one weight.
StepResult ExpectSkippedFor(const Placement& placement, int unit, int64_t element) {
  SplitFloat kept = {};
  return ExpectSkipped(
      placement,
      [&](Rig& rig) {
        const auto access = rig.store->BeginAccess(unit);
        kept = {rig.store->hi(unit)[element], rig.store->lo(unit)[element]};
        SetWeight(rig, unit, element, std::numeric_limits<float>::infinity());
      },
      [&](Rig& rig) { SetWeight(rig, unit, element, JoinFloat(kept.hi, kept.lo)); });
}

TEST(StepPipelineTest, ALossThatIsNotFiniteIsLocatedAndLeavesTheStoreAlone) {
  for (const Placement& placement : AllPlacements()) {
    if (placement.tied || !placement.updates.empty()) {
      // A tied table is read by the head too, so every document may show it; and what is on the
      // device cannot be broken in the store.
      continue;
    }
    SCOPED_TRACE(Describe(placement));
    const StepResult in_table = ExpectSkippedFor(placement, /*unit=*/0, 6 * 8);
    EXPECT_EQ(in_table.non_finite.unit, 0);
    EXPECT_EQ(in_table.non_finite.micro_batch, 1);
    EXPECT_EQ(in_table.non_finite.document, 1);
    EXPECT_EQ(in_table.non_finite.tensor, "");

    const StepResult in_layer = ExpectSkippedFor(placement, /*unit=*/2, 0);
    EXPECT_EQ(in_layer.non_finite.unit, 2);
    EXPECT_EQ(in_layer.non_finite.micro_batch, 0);
    EXPECT_EQ(in_layer.non_finite.document, 0);

    const StepResult in_head = ExpectSkippedFor(placement, /*unit=*/5, 0);
    EXPECT_EQ(in_head.non_finite.unit, 5);
  }
}

TEST(StepPipelineTest, AGradientThatIsNotFiniteIsLocatedAndLeavesTheStoreAlone) {
  for (const Placement& placement : AllPlacements()) {
    SCOPED_TRACE(Describe(placement));
    const StepResult result = ExpectSkipped(
        placement, [](Rig& rig) { rig.templates.set_broken_layer(3); },
        [](Rig& rig) { rig.templates.set_broken_layer(-1); });
    EXPECT_TRUE(std::isfinite(result.loss));
    EXPECT_EQ(result.non_finite.unit, 3);
    EXPECT_EQ(result.non_finite.tensor, "model.layers.2.input_layernorm.weight");
  }
}

TEST(StepPipelineTest, EvaluatesWithTheWeightsThatAllSubmittedStepsLeave) {
  const std::vector<SmallStep> steps = SmallSteps(/*seed=*/9, 3);
  const std::vector<SmallStep> held_out_steps = SmallSteps(/*seed=*/10, 5);
  std::vector<MicroBatch> held_out;  // more than one pass
  for (const SmallStep& step : held_out_steps) {
    for (const SmallMicroBatch& batch : step.micro_batches) {
      held_out.push_back(batch.View());
    }
  }
  std::vector<double> losses;
  for (const Placement& placement : AllPlacements()) {
    if (placement.tied || placement.dtype == ComputeDtype::kBfloat16) {
      continue;
    }
    SCOPED_TRACE(Describe(placement));
    Rig rig(placement);
    const auto before = rig.pipeline->Evaluate(held_out);
    ASSERT_TRUE(before.ok()) << before.status();
    ASSERT_TRUE(rig.pipeline->SubmitStep(steps[0].Input()).ok());
    const auto after_one = rig.pipeline->Evaluate(held_out);  // its updates may still run
    ASSERT_TRUE(after_one.ok());
    ASSERT_TRUE(rig.pipeline->SubmitStep(steps[1].Input()).ok());
    ASSERT_TRUE(rig.pipeline->WaitStep().ok());
    ASSERT_TRUE(rig.pipeline->WaitStep().ok());
    ASSERT_TRUE(rig.pipeline->Drain().ok());
    EXPECT_TRUE(TrainedBytes(rig.layout, *rig.store) ==
                TrainInPlainLoops(false, placement.dtype, {steps[0], steps[1]}).trained_bytes)
        << "evaluation changed the training";
    EXPECT_NE(*before, *after_one);
    losses.push_back(*before);
    losses.push_back(*after_one);
    EXPECT_EQ(losses[losses.size() - 2], losses[0]);
    EXPECT_EQ(losses.back(), losses[1]);
  }
}

TEST(StepPipelineTest, AnErrorOfATemplateEndsEverything) {
  const std::vector<SmallStep> steps = SmallSteps(/*seed=*/11, 3);
  for (const int failing_call : {0, 5, 20}) {
    Rig rig({});
    int calls = 0;
    rig.templates.set_observer([&](int) {
      return calls++ == failing_call ? absl::InternalError("no such kernel") : absl::OkStatus();
    });
    for (const SmallStep& step : steps) {
      ASSERT_TRUE(rig.pipeline->SubmitStep(step.Input()).ok());
    }
    absl::Status status;
    for (size_t i = 0; i < steps.size(); ++i) {
      status.Update(rig.pipeline->WaitStep().status());
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(status.message()), HasSubstr("no such kernel"));
    EXPECT_EQ(rig.pipeline->Drain().code(), absl::StatusCode::kInternal);
    EXPECT_FALSE(rig.pipeline->WaitStep().ok());
  }
}

TEST(StepPipelineTest, RefusesWhatWasNotPlannedFor) {
  Rig rig({});
  const SmallStep step = SmallSteps(/*seed=*/12, 1)[0];
  StepInput none = step.Input();
  none.micro_batches.clear();
  EXPECT_EQ(rig.pipeline->SubmitStep(none).code(), absl::StatusCode::kInvalidArgument);

  StepInput many = step.Input();
  many.micro_batches.resize(kSmallMicroBatches + 1, many.micro_batches[0]);
  EXPECT_EQ(rig.pipeline->SubmitStep(many).code(), absl::StatusCode::kInvalidArgument);

  const auto odd = StepPipeline::Create(
      {*rig.device, rig.math, *rig.store, rig.templates, rig.pool}, rig.layout,
      {.state_chunk_elements = 100, .max_micro_batch_tokens = 1, .max_step_tokens = 1});
  EXPECT_EQ(odd.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(odd.status().message()), HasSubstr("100, not a multiple of 64"));

  StepInput no_loss = step.Input();
  no_loss.loss_token_count = 0;
  EXPECT_EQ(rig.pipeline->SubmitStep(no_loss).code(), absl::StatusCode::kInvalidArgument);

  const std::vector<int32_t> tokens(kSmallMicroBatchTokens + 1, 0);
  StepInput wide = step.Input();
  wide.micro_batches[0].tokens = tokens;
  const absl::Status status = rig.pipeline->SubmitStep(wide);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("41 tokens"));
}

}  // namespace
}  // namespace megatrain
