#include "runtime/pipeline/step_pipeline.h"

#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "runtime/base/mutex.h"
#include "runtime/device/stream_figures.h"
#include "runtime/device/virtual_device.h"
#include "runtime/model/layer_template.h"
#include "runtime/pipeline/pipeline_rig_for_test.h"
#include "runtime/pipeline/placements_for_test.h"
#include "runtime/pipeline/small_training.h"
#include "runtime/schedule/schedule.h"

namespace megatrain {
namespace {

constexpr auto kHost = UpdatePlacement::kHost;
constexpr auto kDevice = UpdatePlacement::kDevice;
constexpr auto kOverBus = UpdatePlacement::kOverBus;
constexpr auto kOverBusResident = UpdatePlacement::kOverBusResident;

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

// As a folded host store: for speed alone.
TEST(StepPipelineTest, FoldedStashesTakeLessMemoryAndStayFinite) {
  const std::vector<SmallStep> steps = SmallSteps(/*seed=*/14, 3);
  Placement placement = {.keep = std::vector<KeepLevel>(6, KeepLevel::kProducts),
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
  for (const UpdatePlacement placement :
       {kHost, kDevice, kOverBus, UpdatePlacement::kOverBusKeptGradient, kOverBusResident}) {
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

}  // namespace
}  // namespace megatrain
