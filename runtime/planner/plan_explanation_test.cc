#include "runtime/planner/plan_explanation.h"

#include <numeric>

#include "gtest/gtest.h"
#include "runtime/config/shapes.h"
#include "runtime/planner/machine_file.h"

namespace megatrain {
namespace {

JobShape Job(int64_t rows) {
  return {
      .batch_rows = rows, .max_sequence_length = 1024, .compute_dtype = ComputeDtype::kBfloat16};
}

PlanExplanation Explain(const char* shape_name, const JobShape& job, const char* machine_name) {
  const ModelConfig config = ShapeByName(shape_name).value();
  const MachineProfile machine = MachineByName(machine_name).value().profile;
  return ExplainPlan(config, job, machine, PlanJob(config, job, machine));
}

int64_t UnitsOf(const PlanExplanation& explanation, const std::string& plane) {
  return std::accumulate(explanation.planes.begin(), explanation.planes.end(), int64_t{0},
                         [&](int64_t sum, const PlanePlacement& placement) {
                           return sum + (placement.plane == plane ? placement.unit_count : 0);
                         });
}

TEST(PlanExplanationTest, EveryUnitIsSomewhere) {
  const PlanExplanation explanation = Explain("qwen2.5-7b", Job(64), "h200-1536g");
  for (const char* plane : {"weights", "gradients", "optimizer_states", "updates"}) {
    EXPECT_EQ(UnitsOf(explanation, plane), 30) << plane;
  }
  for (const char* plane : {"boundaries", "activations"}) {
    EXPECT_EQ(UnitsOf(explanation, plane), 28) << plane;
  }
  EXPECT_EQ(explanation.binding_resource, "compute");
}

TEST(PlanExplanationTest, AFewTokensHangOnTheBus) {
  // 72 billion parameters cross the bus for 8,192 tokens.
  const PlanExplanation explanation = Explain("qwen2.5-72b", Job(8), "h200-1536g");
  EXPECT_NE(explanation.binding_resource, "compute");
  ASSERT_FALSE(explanation.gains.empty());
  for (size_t i = 1; i < explanation.gains.size(); ++i) {
    EXPECT_LE(explanation.gains[i].saved_seconds, explanation.gains[i - 1].saved_seconds);
  }
}

TEST(PlanExplanationTest, MoreMemoryHelpsWhereTheLimitIsTight) {
  JobShape job = Job(64);
  job.device_limit_bytes = int64_t{48} << 30;
  const PlanExplanation explanation = Explain("qwen2.5-7b", job, "h200-1536g");
  bool helps = false;
  for (const ResourceGain& gain : explanation.gains) {
    helps = helps || (gain.resource == "device_memory" && gain.saved_seconds > 0);
  }
  EXPECT_TRUE(helps);
}

TEST(PlanExplanationTest, WhatDoesNotFitHasNoGains) {
  const PlanExplanation explanation = Explain("qwen2.5-72b", Job(64), "rtx3090-128g");
  EXPECT_TRUE(explanation.gains.empty());
}

}  // namespace
}  // namespace megatrain
