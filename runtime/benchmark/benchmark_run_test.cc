#include "runtime/benchmark/benchmark_run.h"

#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
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

// What it says, also as a line.
struct Said {
  std::string text;
  nlohmann::json line;
};
Said RunOnCpu(const BenchmarkFlags& flags) {
  SystemClock clock;
  const auto backend = MakeCpuBackend(1);
  std::ostringstream text;
  const absl::Status status =
      RunBenchmark(flags, {.backend = *backend, .tracer = nullptr, .clock = clock}, text);
  EXPECT_TRUE(status.ok()) << status;
  return {text.str(), status.ok() ? LastLine(flags.output) : nlohmann::json()};
}

TEST(BenchmarkRunTest, TrainsAndSaysHowFast) {
  const BenchmarkFlags flags = SmallRun("result.jsonl");
  const auto [text, line] = RunOnCpu(flags);
  EXPECT_NE(text.find("model TFLOP/s"), std::string::npos) << text;
  EXPECT_EQ(line.at("backend"), "cpu");
  EXPECT_EQ(line.at("steps"), 3);
  EXPECT_EQ(line.at("loss_tokens_per_step"), 60);
  EXPECT_GT(line.at("tokens_per_second"), 0);
  EXPECT_GT(line.at("steady_step_seconds"), 0);
  EXPECT_GT(line.at("busy_seconds").at("compute"), 0);
  EXPECT_NEAR(line.at("last_loss"), std::log(512.0), 0.5);
}

TEST(BenchmarkRunTest, EndsEarlyWhereTimeIsShort) {
  BenchmarkFlags flags = SmallRun("short.jsonl");
  flags.steps = 1000;
  flags.time_limit_seconds = 1e-6;
  EXPECT_EQ(RunOnCpu(flags).line.at("steps"), 2);
}

// Every number that the planner may vary; the loss after four steps hangs on all bits before it.
TEST(BenchmarkRunTest, LossesDoNotDependOnThePlacement) {
  const std::vector<std::function<void(BenchmarkFlags&)>> placements = {
      [](BenchmarkFlags&) {},
      [](BenchmarkFlags& flags) { flags.order = "layer_major"; },
      [](BenchmarkFlags& flags) { flags.order = "micro_batch_major"; },
      [](BenchmarkFlags& flags) { flags.weights = "resident"; },
      [](BenchmarkFlags& flags) { flags.weight_slots = 1; },
      [](BenchmarkFlags& flags) { flags.device_state_units = 0; },
      [](BenchmarkFlags& flags) { flags.device_state_units = 4; },
      [](BenchmarkFlags& flags) { flags.device_state_units = flags.device_weight_units = 1; },
      [](BenchmarkFlags& flags) { flags.device_weight_units = 4; },
      [](BenchmarkFlags& flags) {
        flags.device_state_units = flags.device_weight_units = 0;
        flags.bus_update_units = 2;
        flags.kept_gradient_units = 0;
      },
      [](BenchmarkFlags& flags) {
        flags.device_state_units = flags.device_weight_units = 0;
        flags.bus_update_units = 3;
        flags.kept_gradient_units = 2;
      },
      [](BenchmarkFlags& flags) {
        flags.order = "layer_major";
        flags.host_boundary_layers = 2;
      }};
  std::optional<double> loss;
  for (size_t i = 0; i < placements.size(); ++i) {
    BenchmarkFlags flags = SmallRun("placements.jsonl");
    placements[i](flags);
    const auto [text, line] = RunOnCpu(flags);
    const double last_loss = line.at("last_loss");
    EXPECT_EQ(last_loss, loss.value_or(last_loss)) << "placement " << i << "\n" << text;
    loss = last_loss;
  }
}

TEST(BenchmarkRunTest, HostMemoryStaysWithinThePlan) {
  const BenchmarkFlags flags = SmallRun("memory.jsonl");
  const nlohmann::json line = RunOnCpu(flags).line;
  EXPECT_LE(line.at("peak_host_bytes"), line.at("planned_host_bytes"));
}

TEST(BenchmarkRunTest, WhatIsLeftOutChangesNoLoss) {
  std::vector<double> losses;
  for (const std::vector<std::string>& without : {std::vector<std::string>{}, Ablations()}) {
    BenchmarkFlags flags = SmallRun("ablations.jsonl");
    flags.without = without;
    losses.push_back(RunOnCpu(flags).line.at("last_loss"));
  }
  EXPECT_EQ(losses[0], losses[1]);
}

// The norm adds up in another order: equal but for the last bits.
TEST(BenchmarkRunTest, CheckpointsFurtherApartComputeMoreAndChangeNoLoss) {
  std::vector<nlohmann::json> lines;
  for (const int interval : {1, 2, 4}) {
    BenchmarkFlags flags = SmallRun("interval.jsonl");
    flags.layers = 4;
    flags.order = "layer_major";
    flags.checkpoint_interval = interval;
    flags.folded_store = interval == 4 ? 2 : 0;
    lines.push_back(RunOnCpu(flags).line);
    EXPECT_EQ(lines.back().at("checkpoint_interval"), interval);
    EXPECT_EQ(lines.back().at("units"), 4 / interval + 2);
  }
  const double loss = lines[0].at("last_loss");
  EXPECT_NEAR(lines[1].at("last_loss"), loss, 1e-9 * loss);
  EXPECT_NEAR(lines[2].at("last_loss"), loss, 1e-9 * loss);
  const auto extra = [](const nlohmann::json& line) {
    return line.at("hardware_tflops").get<double>() / line.at("model_tflops").get<double>();
  };
  EXPECT_GT(extra(lines[1]), 1.05 * extra(lines[0]));
  EXPECT_GT(extra(lines[2]), 1.02 * extra(lines[1]));
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
