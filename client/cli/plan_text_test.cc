#include "client/cli/plan_text.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

}  // namespace
}  // namespace megatrain
