#include "runtime/benchmark/benchmark_run.h"

#include <cmath>
#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "runtime/trainer/cpu_backend.h"

namespace megatrain {
namespace {

BenchmarkFlags SmallRun(const std::string& output) {
  BenchmarkFlags flags;
  flags.shape = "tiny";
  flags.tokens = 64;
  flags.sequence_length = 16;
  flags.micro_batch_tokens = 32;
  flags.steps = 3;
  flags.warm_up = 1;
  flags.threads = 1;
  flags.output = testing::TempDir() + "/" + output;
  std::remove(flags.output.c_str());
  return flags;
}

nlohmann::json LastLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::string last;
  while (std::getline(file, line)) {
    last = line;
  }
  return nlohmann::json::parse(last);
}

TEST(BenchmarkRunTest, TrainsAndSaysHowFast) {
  const BenchmarkFlags flags = SmallRun("result.jsonl");
  SystemClock clock;
  const auto backend = MakeCpuBackend(1);
  std::ostringstream text;
  const absl::Status status =
      RunBenchmark(flags, {.backend = *backend, .tracer = nullptr, .clock = clock}, text);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_NE(text.str().find("model TFLOP/s"), std::string::npos) << text.str();
  const nlohmann::json line = LastLine(flags.output);
  EXPECT_EQ(line.at("backend"), "cpu");
  EXPECT_EQ(line.at("steps"), 3);
  EXPECT_EQ(line.at("loss_tokens_per_step"), 60);
  EXPECT_GT(line.at("tokens_per_second"), 0);
  EXPECT_GT(line.at("busy_seconds").at("compute"), 0);
  EXPECT_NEAR(line.at("last_loss"), std::log(512.0), 0.5);
}

TEST(BenchmarkRunTest, LossesDoNotDependOnThePlacement) {
  SystemClock clock;
  const auto backend = MakeCpuBackend(1);
  std::vector<double> losses;
  for (const auto& [order, units] :
       {std::pair("layer_major", 0), {"micro_batch_major", 0}, {"micro_batch_major", 4}}) {
    BenchmarkFlags flags = SmallRun("placements.jsonl");
    flags.order = order;
    flags.device_state_units = units;
    std::ostringstream text;
    const absl::Status status =
        RunBenchmark(flags, {.backend = *backend, .tracer = nullptr, .clock = clock}, text);
    ASSERT_TRUE(status.ok()) << status;
    losses.push_back(LastLine(flags.output).at("last_loss"));
  }
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_EQ(losses[0], losses[2]);
}

TEST(BenchmarkRunTest, HostMemoryStaysWithinThePlan) {
  const BenchmarkFlags flags = SmallRun("memory.jsonl");
  SystemClock clock;
  const auto backend = MakeCpuBackend(1);
  std::ostringstream text;
  ASSERT_TRUE(
      RunBenchmark(flags, {.backend = *backend, .tracer = nullptr, .clock = clock}, text).ok());
  const nlohmann::json line = LastLine(flags.output);
  EXPECT_LE(line.at("peak_host_bytes"), line.at("planned_host_bytes"));
}

TEST(BenchmarkRunTest, WhatIsLeftOutChangesNoLoss) {
  SystemClock clock;
  const auto backend = MakeCpuBackend(1);
  std::vector<double> losses;
  for (const std::vector<std::string>& without : {std::vector<std::string>{}, Ablations()}) {
    BenchmarkFlags flags = SmallRun("ablations.jsonl");
    flags.without = without;
    std::ostringstream text;
    const absl::Status status =
        RunBenchmark(flags, {.backend = *backend, .tracer = nullptr, .clock = clock}, text);
    ASSERT_TRUE(status.ok()) << status;
    losses.push_back(LastLine(flags.output).at("last_loss"));
  }
  EXPECT_EQ(losses[0], losses[1]);
}

TEST(BenchmarkRunTest, ACpuHasNoTrace) {
  BenchmarkFlags flags = SmallRun("trace.jsonl");
  flags.profile_steps = 1;
  SystemClock clock;
  const auto backend = MakeCpuBackend(1);
  std::ostringstream text;
  EXPECT_EQ(
      RunBenchmark(flags, {.backend = *backend, .tracer = nullptr, .clock = clock}, text).code(),
      absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace megatrain
