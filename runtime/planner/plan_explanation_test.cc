#include "runtime/planner/plan_explanation.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

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

TEST(PlanExplanationTest, NothingIsPinnedForProcessors) {
  const ModelConfig config = ShapeByName("tiny").value();
  const MachineProfile machine{.backend = Backend::kCpu, .host_available_bytes = int64_t{64} << 30};
  const PlanExplanation explanation =
      ExplainPlan(config, Job(4), machine, PlanJob(config, Job(4), machine));
  EXPECT_EQ(UnitsOf(explanation, "weights"), config.layer_count + 2);
  for (const PlanePlacement& placement : explanation.planes) {
    EXPECT_EQ(placement.place.find("pinned"), std::string::npos) << placement.plane;
  }
}

// By plane and place.
int64_t UnitsAt(const PlanExplanation& explanation, const std::string& plane,
                const std::string& place) {
  for (const PlanePlacement& placement : explanation.planes) {
    if (placement.plane == plane && placement.place == place) {
      return placement.unit_count;
    }
  }
  return 0;
}

// A plan of two layers and the ends under those options.
PlanExplanation ExplainOptions(const PipelineOptions& options) {
  ModelConfig config = ShapeByName("tiny").value();
  config.layer_count = 2;
  Plan plan;
  plan.pipeline = options;
  plan.pipeline.max_step_tokens = 4096;
  plan.pipeline.max_micro_batches = 4;
  plan.pipeline.kept_token_bytes = {0, 1, 2, 3, 4};
  return ExplainPlan(config, Job(4), {.backend = Backend::kCuda}, plan);
}

TEST(PlanExplanationTest, TellsWhatStaysOnTheGpuAndWhatOfALayerIsKept) {
  const PlanExplanation streamed =
      ExplainOptions({.weight_slot_count = 1,
                      .keep = {KeepLevel::kNothing, KeepLevel::kAttention, KeepLevel::kProjections,
                               KeepLevel::kNothing}});
  EXPECT_EQ(UnitsAt(streamed, "weights", "pinned_host"), 2);
  EXPECT_EQ(UnitsAt(streamed, "weights", "pinned_host_once"), 2);  // the ends
  EXPECT_EQ(UnitsAt(streamed, "optimizer_states", "pageable_host"), 4);
  EXPECT_EQ(UnitsAt(streamed, "updates", "host"), 4);
  EXPECT_EQ(UnitsAt(streamed, "activations", "device_attention"), 1);
  EXPECT_EQ(UnitsAt(streamed, "activations", "device_projections"), 1);

  const PlanExplanation resident =
      ExplainOptions({.weight_slot_count = 2,
                      .updates = {UpdatePlacement::kDevice, UpdatePlacement::kHost,
                                  UpdatePlacement::kOverBus, UpdatePlacement::kHost}});
  EXPECT_EQ(UnitsAt(resident, "weights", "device"), 1);
  EXPECT_EQ(UnitsAt(resident, "weights", "pinned_host_once"), 3);
  EXPECT_EQ(UnitsAt(resident, "optimizer_states", "pinned_host"), 3);  // the plane of all
  EXPECT_EQ(UnitsAt(resident, "updates", "bus"), 1);
  EXPECT_EQ(UnitsAt(resident, "activations", "recomputed"), 2);
}

TEST(PlanExplanationTest, TellsWhatLayersKeepByMicroBatch) {
  PipelineOptions options{.keep = std::vector<KeepLevel>(4, KeepLevel::kProducts),
                          .boundary_on_host = {false, true, false, false},
                          .kept_on_host = {false, true, true, false}};
  const auto place = [&](int on_host, int on_device) {
    options.kept_places = SpreadKeptPlaces(4, on_host, on_device);
    return ExplainOptions(options);
  };
  EXPECT_EQ(UnitsAt(place(4, 0), "activations", "pinned_host"), 2);
  EXPECT_EQ(UnitsAt(place(1, 0), "activations", "partly_pinned_host"), 2);
  EXPECT_EQ(UnitsAt(place(2, 2), "activations", "device_and_pinned_host"), 2);
  EXPECT_EQ(UnitsAt(place(1, 1), "activations", "partly_device_and_pinned_host"), 2);
  EXPECT_EQ(UnitsAt(place(1, 1), "boundaries", "pinned_host"), 1);

  options.pin = PinMode::kSlabs;
  EXPECT_EQ(UnitsAt(place(4, 0), "activations", "pageable_host"), 2);
  EXPECT_EQ(UnitsAt(place(1, 0), "activations", "partly_pageable_host"), 2);
  EXPECT_EQ(UnitsAt(place(2, 2), "activations", "device_and_pageable_host"), 2);
  EXPECT_EQ(UnitsAt(place(1, 1), "activations", "partly_device_and_pageable_host"), 2);
  EXPECT_EQ(UnitsAt(place(1, 1), "boundaries", "pageable_host"), 1);
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

// The name of what a gain is told of.
std::string GainNameOf(const std::string& resource) {
  return resource == "bus_up" || resource == "bus_down" ? "bus_bandwidth" : resource;
}

TEST(PlanExplanationTest, AStepIsSetByWhatWouldShortenItMost) {
  for (const char* machine : {"rtx3090-128g", "a100-pcie", "h200-1536g"}) {
    for (const int64_t rows : {1, 8, 16, 64}) {
      const PlanExplanation explanation = Explain("qwen2.5-7b", Job(rows), machine);
      double binding_seconds = 0;
      double most_seconds = 0;
      for (const ResourceGain& gain : explanation.gains) {
        if (gain.resource.ends_with("_memory")) {
          continue;
        }
        most_seconds = std::max(most_seconds, gain.saved_seconds);
        if (gain.resource == GainNameOf(explanation.binding_resource)) {
          binding_seconds = gain.saved_seconds;
        }
      }
      EXPECT_EQ(binding_seconds, most_seconds) << machine << " " << rows;
    }
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
