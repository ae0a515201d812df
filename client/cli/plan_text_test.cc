#include "client/cli/plan_text.h"

#include <utility>

#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(PlanTextTest, FourLines) {
  v1::Plan plan;
  plan.set_fits(true);
  plan.set_verdict("it fits, host memory is the limit");
  plan.set_parameter_count(134'515'008);
  plan.set_step_count(120);
  plan.set_order("layer_major");
  plan.set_weight_slot_count(2);
  plan.set_host_bytes(int64_t{3} << 30);
  plan.set_host_available_bytes(int64_t{20} << 30);
  v1::MemoryItem* small = plan.add_host();
  small->set_kind("weights_hi");
  small->set_size_bytes(int64_t{1} << 30);
  v1::MemoryItem* large = plan.add_host();
  large->set_kind("adam_m");
  large->set_size_bytes(int64_t{2} << 30);
  plan.set_device_bytes(int64_t{1} << 20);
  plan.set_device_available_bytes(int64_t{1} << 30);
  EXPECT_THAT(
      PlanLines(plan),
      ElementsAre("work:    134.5M parameters, 120 steps, order layer_major, 2 weight slots",
                  "host:    3.00 GiB of 20.0 GiB (adam_m 2.00 GiB, weights_hi 1.00 GiB)",
                  "device:  1.00 MiB of 1.00 GiB", "verdict: it fits, host memory is the limit"));
}

TEST(PlanTextTest, TellsActiveParametersOfAMixture) {
  v1::Plan plan;
  plan.set_parameter_count(30'532'000'000);
  plan.set_active_parameter_count(3'350'000'000);
  EXPECT_THAT(PlanLines(plan)[0], HasSubstr("30.53B parameters (3.35B active)"));
  EXPECT_THAT(PlanLines(plan)[3], HasSubstr("does not fit"));
}

TEST(PlanTextTest, ExplainsWhereTimeAndMemoryGo) {
  v1::Plan plan;
  plan.set_fits(true);
  plan.set_machine("H200");
  plan.set_parameter_count(7'615'616'512);
  plan.set_step_tokens(65536);
  plan.set_micro_batch_tokens(8192);
  plan.set_step_seconds(4);
  plan.set_binding_resource("compute");
  v1::MemoryItem* item = plan.add_host();
  item->set_kind("adam_m");
  item->set_size_bytes(int64_t{28} << 30);
  v1::ResourceTime* time = plan.add_resources();
  time->set_resource("bus_up");
  time->set_busy_seconds(1);
  v1::ResourceGain* gain = plan.add_gains();
  gain->set_resource("device_memory");
  gain->set_amount("16 GiB more");
  gain->set_saved_seconds(0.25);
  gain = plan.add_gains();
  gain->set_resource("bus_bandwidth");
  gain->set_amount("twice as fast");
  gain->set_saved_seconds(0.5);
  for (const auto& [place, count] : {std::pair("device", 1), std::pair("pinned_host", 29)}) {
    v1::PlanePlacement* plane = plan.add_planes();
    plane->set_plane("weights");
    plane->set_place(place);
    plane->set_unit_count(count);
  }
  plan.set_checkpoint_bytes(int64_t{84} << 30);
  plan.set_checkpoint_seconds(20);
  plan.set_checkpoint_stall_seconds(21.5);
  const std::string text = absl::StrJoin(ExplainedPlanLines(plan), "\n");
  for (const char* part :
       {"machine: H200", "65536 tokens a step, in micro-batches of 8192",
        "28.0 GiB  AdamW's first moments, fp32", "weights, by unit: 1 on the GPU, 29 in pinned",
        "about 4 s, 16384 tokens a second; set by the GPU's arithmetic",
        "1 s ( 25 %)  the bus to the GPU", "GPU memory 16 GiB more: 0.25 s less a step",
        "the bus, both ways, twice as fast: 0.5 s less a step",
        "84.0 GiB a checkpoint, about 20 s to the disk; training stands still for about 21.5 s",
        "verdict: it fits"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(PlanTextTest, NamesEveryPlaceOfMemoryThatIsNotPinned) {
  v1::Plan plan;
  for (const char* place : {"pageable_host", "device_and_pageable_host", "partly_pageable_host",
                            "partly_device_and_pageable_host"}) {
    v1::PlanePlacement* plane = plan.add_planes();
    plane->set_plane("activations");
    plane->set_place(place);
    plane->set_unit_count(1);
  }
  EXPECT_THAT(absl::StrJoin(ExplainedPlanLines(plan), "\n"), Not(HasSubstr("pageable")));
}

TEST(PlanTextTest, WhatIsNotPredictedIsNotExplained) {
  v1::Plan plan;
  plan.set_parameter_count(1000);
  EXPECT_THAT(absl::StrJoin(ExplainedPlanLines(plan), "\n"), Not(HasSubstr("tokens a second")));
}

}  // namespace
}  // namespace megatrain
