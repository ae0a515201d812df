#include "runtime/benchmark/result_line.h"

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace megatrain {
namespace {

BenchmarkSetting Setting() {
  BenchmarkSetting setting;
  setting.shape = "qwen2.5-7b";
  setting.layers = 28;
  setting.tokens_per_step = 65536;
  setting.loss_tokens_per_step = 65472;
  setting.sequence_length = 1024;
  setting.micro_batch_tokens = 8192;
  setting.hbm_limit_gib = 64;
  setting.matmul_flops = 625e12;
  setting.attention = "fast";
  setting.order = "micro_batch_major";
  setting.keep = "all";
  setting.command = "benchmark --shape \"x\"";
  return setting;
}

BenchmarkFigures Figures() {
  BenchmarkFigures figures;
  figures.steps = 10;
  figures.steady_step = absl::Seconds(3.75);
  figures.elapsed = absl::Seconds(40);
  figures.model_flops_per_step = 2e15;
  figures.hardware_flops_per_step = 3e15;
  figures.predicted.seconds = 3.5;
  figures.predicted.busy_seconds[static_cast<int>(Resource::kBusUp)] = 0.25;
  figures.streams[0].busy = absl::Seconds(39);
  figures.streams[1].waits[static_cast<int>(WaitReason::kSlotFree)] = absl::Seconds(5);
  figures.peak_device_bytes = int64_t{130} << 30;
  figures.traced = {
      .kernels = {.sum_nanoseconds = 3'900'000'000, .busy_nanoseconds = 3'800'000'000},
      .elapsed = absl::Seconds(4)};
  return figures;
}

TEST(ResultLineTest, JsonHoldsRatesOfAStep) {
  const std::string text = ToJsonLine(Setting(), Figures());
  EXPECT_EQ(text.find('\n'), std::string::npos);
  const nlohmann::json line = nlohmann::json::parse(text);
  EXPECT_EQ(line.at("shape"), "qwen2.5-7b");
  EXPECT_EQ(line.at("hbm_limit_gib"), 64.0);
  EXPECT_DOUBLE_EQ(line.at("step_seconds"), 4.0);
  EXPECT_DOUBLE_EQ(line.at("steady_step_seconds"), 3.75);
  EXPECT_DOUBLE_EQ(line.at("predicted_step_seconds"), 3.5);
  EXPECT_DOUBLE_EQ(line.at("predicted_busy_seconds").at("bus_up"), 0.25);
  EXPECT_DOUBLE_EQ(line.at("tokens_per_second"), 16384.0);
  EXPECT_DOUBLE_EQ(line.at("loss_tokens_per_second"), 16368.0);
  EXPECT_DOUBLE_EQ(line.at("model_tflops"), 500.0);
  EXPECT_DOUBLE_EQ(line.at("hardware_tflops"), 750.0);
  EXPECT_DOUBLE_EQ(line.at("model_flops_utilization"), 0.8);
  EXPECT_DOUBLE_EQ(line.at("kernel_time_share"), 0.975);
  EXPECT_DOUBLE_EQ(line.at("kernel_busy_share"), 0.95);
  EXPECT_DOUBLE_EQ(line.at("busy_seconds").at("compute"), 3.9);
  EXPECT_DOUBLE_EQ(line.at("wait_seconds").at("h2d").at("slot_free"), 0.5);
  EXPECT_EQ(line.at("peak_device_bytes"), int64_t{130} << 30);
  EXPECT_EQ(line.at("folded"), false);
  EXPECT_EQ(line.at("command"), "benchmark --shape \"x\"");
}

TEST(ResultLineTest, WhatWasNotLimitedOrTracedIsNull) {
  BenchmarkSetting setting = Setting();
  setting.hbm_limit_gib.reset();
  BenchmarkFigures figures = Figures();
  figures.traced.reset();
  const nlohmann::json line = nlohmann::json::parse(ToJsonLine(setting, figures));
  EXPECT_TRUE(line.at("hbm_limit_gib").is_null());
  EXPECT_TRUE(line.at("host_limit_gib").is_null());
  EXPECT_TRUE(line.at("kernel_time_share").is_null());
  EXPECT_TRUE(line.at("kernel_busy_share").is_null());
}

TEST(ResultLineTest, TextSaysWhatAFoldedRunIsGoodFor) {
  BenchmarkSetting setting = Setting();
  EXPECT_NE(ToText(setting, Figures()).find("500.0 model TFLOP/s (750.0 hardware)"),
            std::string::npos);
  EXPECT_NE(ToText(setting, Figures()).find("kernels 97.5 % of the wall time"), std::string::npos);
  EXPECT_EQ(ToText(setting, Figures()).find("folded"), std::string::npos);
  EXPECT_NE(ToText(setting, Figures()).find("h2d: busy 0.0000 s a step, slot_free 0.5000"),
            std::string::npos)
      << ToText(setting, Figures());
  setting.folded = true;
  EXPECT_NE(ToText(setting, Figures()).find("nothing is learned"), std::string::npos);
}

}  // namespace
}  // namespace megatrain
