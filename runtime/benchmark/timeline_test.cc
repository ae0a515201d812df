#include "runtime/benchmark/timeline.h"

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace megatrain {
namespace {

using Kind = DeviceActivity::Kind;

// Two streams: kernels at 1000..3000 and 2000..4000, one inside the first, one apart, and a copy.
std::vector<DeviceActivity> Activities() {
  return {{Kind::kKernel, "norm", 1000, 3000, 7},
          {Kind::kKernel, "gemm", 2000, 4000, 8},
          {Kind::kKernel, "norm", 1500, 2500, 8},
          {Kind::kCopyToDevice, "copy to device", 4000, 9000, 9, 64},
          {Kind::kKernel, "gemm", 6000, 10000, 7}};
}

TEST(TimelineTest, SumsKernelsAndTheTimeThatAnyRuns) {
  const KernelTime time = SumKernels(Activities());
  EXPECT_EQ(time.sum_nanoseconds, 2000 + 2000 + 1000 + 4000);
  EXPECT_EQ(time.busy_nanoseconds, 3000 + 4000);
  EXPECT_EQ(SumKernels({}).sum_nanoseconds, 0);
}

TEST(TimelineTest, TotalsHaveTheLongestFirst) {
  const std::vector<ActivityTotal> totals = TotalsByName(Activities());
  ASSERT_EQ(totals.size(), 3);
  EXPECT_EQ(totals[0].name, "gemm");
  EXPECT_EQ(totals[0].count, 2);
  EXPECT_EQ(totals[0].nanoseconds, 6000);
  EXPECT_EQ(totals[1].name, "copy to device");
  EXPECT_EQ(totals[2].name, "norm");
  EXPECT_EQ(totals[2].nanoseconds, 3000);
  const std::string text = FormatTotals(totals, 12000);
  EXPECT_NE(text.find("     0.006        2  50.00%  gemm\n"), std::string::npos) << text;
}

TEST(TimelineTest, TraceHasATrackPerStreamAndStartsAtZero) {
  const nlohmann::json trace = nlohmann::json::parse(ToTraceJson(Activities()));
  const nlohmann::json& events = trace.at("traceEvents");
  ASSERT_EQ(events.size(), 5);
  EXPECT_EQ(events[0].at("name"), "norm");
  EXPECT_EQ(events[0].at("ts"), 0.0);
  EXPECT_EQ(events[1].at("ts"), 1.0);
  EXPECT_EQ(events[1].at("dur"), 2.0);
  EXPECT_EQ(events[1].at("tid"), 8);
  EXPECT_EQ(events[3].at("args").at("bytes"), 64);
  EXPECT_FALSE(events[0].contains("args"));
}

}  // namespace
}  // namespace megatrain
