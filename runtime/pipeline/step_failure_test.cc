// Steps that go wrong, and what is asked of a pipeline that it cannot do.

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/hoststore/split_float.h"
#include "runtime/model/layer_template.h"
#include "runtime/pipeline/pipeline_rig_for_test.h"
#include "runtime/pipeline/placements_for_test.h"
#include "runtime/pipeline/small_training.h"
#include "runtime/pipeline/step_pipeline.h"
#include "runtime/pipeline/step_result.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

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

// ExpectSkipped with an infinity in one weight, found by the templates or by the pipeline.
StepResult ExpectSkippedFor(const Placement& placement, bool templates_mark, int unit,
                            int64_t element) {
  SplitFloat kept = {};
  return ExpectSkipped(
      placement,
      [&](Rig& rig) {
        rig.templates.set_marks_inputs(templates_mark);
        const auto access = rig.store->BeginAccess(unit);
        kept = {rig.store->hi(unit)[element], rig.store->lo(unit)[element]};
        SetWeight(rig, unit, element, std::numeric_limits<float>::infinity());
      },
      [&](Rig& rig) { SetWeight(rig, unit, element, JoinFloat(kept.hi, kept.lo)); });
}

void ExpectLossesLocated(const Placement& placement, bool templates_mark) {
  const StepResult in_table =
      ExpectSkippedFor(placement, templates_mark, /*unit=*/0, int64_t{6} * 8);
  EXPECT_EQ(in_table.non_finite.unit, 0);
  EXPECT_EQ(in_table.non_finite.micro_batch, 1);
  EXPECT_EQ(in_table.non_finite.document, 1);
  EXPECT_EQ(in_table.non_finite.tensor, "");

  for (const int unit : {2, 4}) {  // one of several layers, and the last
    const StepResult in_layer = ExpectSkippedFor(placement, templates_mark, unit, 0);
    EXPECT_EQ(in_layer.non_finite.unit, unit);
    EXPECT_EQ(in_layer.non_finite.micro_batch, 0);
    EXPECT_EQ(in_layer.non_finite.document, 0);
  }

  const StepResult in_head = ExpectSkippedFor(placement, templates_mark, /*unit=*/5, 0);
  EXPECT_EQ(in_head.non_finite.unit, 5);
}

TEST(StepFailureTest, ALossThatIsNotFiniteIsLocatedAndLeavesTheStoreAlone) {
  for (const Placement& placement : AllPlacements()) {
    if (placement.tied || !placement.updates.empty()) {
      // A tied table is read by the head too, so every document may show it; and what is on the
      // device cannot be broken in the store.
      continue;
    }
    SCOPED_TRACE(Describe(placement));
    ExpectLossesLocated(placement, /*templates_mark=*/false);
    ExpectLossesLocated(placement, /*templates_mark=*/true);
  }
}

// The second one later in its micro-batch, and in a later unit, than the first.
TEST(StepFailureTest, OfAStepThatFailedNothingIsLeftForTheNextThatFails) {
  for (const bool templates_mark : {false, true}) {
    SCOPED_TRACE(templates_mark);
    Rig rig(AllPlacements().front());
    rig.templates.set_marks_inputs(templates_mark);
    const auto fail = [&rig](int unit, int64_t element) {
      SplitFloat kept = {};
      {
        const auto access = rig.store->BeginAccess(unit);
        kept = {rig.store->hi(unit)[element], rig.store->lo(unit)[element]};
      }
      SetWeight(rig, unit, element, std::numeric_limits<float>::infinity());
      const SmallStep step = ThreeDocuments();
      EXPECT_TRUE(rig.pipeline->SubmitStep(step.Input()).ok());
      const auto result = rig.pipeline->WaitStep();
      EXPECT_TRUE(result.ok()) << result.status();
      EXPECT_TRUE(rig.pipeline->Drain().ok());
      SetWeight(rig, unit, element, JoinFloat(kept.hi, kept.lo));
      return result->non_finite;
    };
    const NonFinite first = fail(/*unit=*/0, int64_t{4} * 8);  // the first document of two
    EXPECT_EQ(first.unit, 0);
    EXPECT_EQ(first.micro_batch, 1);
    EXPECT_EQ(first.document, 0);
    EXPECT_EQ(fail(/*unit=*/0, int64_t{6} * 8).document, 1);
    EXPECT_EQ(fail(/*unit=*/3, 0).unit, 3);
  }
}

TEST(StepFailureTest, AGradientThatIsNotFiniteIsLocatedAndLeavesTheStoreAlone) {
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

TEST(StepFailureTest, AnErrorOfATemplateEndsEverything) {
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

TEST(StepFailureTest, RefusesWhatWasNotPlannedFor) {
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
