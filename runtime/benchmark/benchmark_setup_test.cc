#include "runtime/benchmark/benchmark_setup.h"

#include "gtest/gtest.h"
#include "runtime/pipeline/device_memory.h"

namespace megatrain {
namespace {

BenchmarkMachine LargeGpu() {
  return {.backend = Backend::kCuda,
          .device_bytes = int64_t{138} << 30,
          .host_bytes = int64_t{1024} << 30,
          .speeds = {}};
}

TEST(BenchmarkSetupTest, ThePlannerChoosesWhatIsLeftOpen) {
  const BenchmarkSetup setup = SetUpBenchmark({}, LargeGpu()).value();
  EXPECT_EQ(setup.step.rows, 64);
  EXPECT_EQ(setup.compute.dtype, ComputeDtype::kBfloat16);
  EXPECT_EQ(setup.setting.order, "micro_batch_major");
  EXPECT_EQ(setup.setting.keep, "products");
  EXPECT_GE(setup.setting.device_state_units, 20);
  EXPECT_EQ(setup.setting.units, 30);
  EXPECT_EQ(setup.setting.loss_tokens_per_step, 65536 - 64);
  EXPECT_EQ(setup.setting.parameters, 7'615'616'512);
}

TEST(BenchmarkSetupTest, SpeedIsHeldAgainstWhatWasMeasured) {
  BenchmarkFlags flags;
  EXPECT_FALSE(SetUpBenchmark(flags, LargeGpu())->setting.matmul_flops.has_value());
  flags.machine = "machine.json";
  const BenchmarkMachine gpu = LargeGpu();
  EXPECT_EQ(SetUpBenchmark(flags, gpu)->setting.matmul_flops, gpu.speeds.matmul_flops);
  flags.compute_dtype = "fp32";
  EXPECT_EQ(SetUpBenchmark(flags, gpu)->setting.matmul_flops, gpu.speeds.float32_flops);
}

TEST(BenchmarkSetupTest, OfWhatDoesNotOverlapNothingIsPredicted) {
  BenchmarkFlags flags;
  EXPECT_GT(SetUpBenchmark(flags, LargeGpu())->placement.predicted.seconds, 0);
  flags.without = {kWithoutOverlap};
  EXPECT_EQ(SetUpBenchmark(flags, LargeGpu())->placement.predicted.seconds, 0);
}

TEST(BenchmarkSetupTest, FlagsAreHeeded) {
  BenchmarkFlags flags;
  flags.tokens = 16384;
  flags.micro_batch_tokens = 2500;  // two rows
  flags.order = "layer_major";
  flags.keep = "projections";
  flags.weights = "streamed";
  flags.device_state_units = 2;
  flags.compute_dtype = "fp32";
  flags.attention = "deterministic";
  flags.hbm_limit_gib = 64;
  flags.folded_store = 4;
  const BenchmarkSetup setup = SetUpBenchmark(flags, LargeGpu()).value();
  EXPECT_EQ(setup.setting.micro_batch_tokens, 2048);
  EXPECT_EQ(setup.setting.order, "layer_major");
  EXPECT_EQ(setup.setting.keep, "projections");
  EXPECT_FALSE(setup.setting.resident_weights);
  EXPECT_EQ(setup.setting.device_state_units, 2);
  EXPECT_EQ(setup.setting.compute_dtype, "fp32");
  EXPECT_EQ(setup.compute.attention, AttentionMode::kDeterministic);
  EXPECT_EQ(setup.setting.hbm_limit_gib, 64);
  EXPECT_TRUE(setup.setting.folded);
}

TEST(BenchmarkSetupTest, WhatIsLeftOutIsNotPlaced) {
  BenchmarkFlags flags;
  flags.hbm_limit_gib = 64;
  flags.order = "layer_major";
  flags.weights = "streamed";
  flags.without = Ablations();
  const BenchmarkSetup setup = SetUpBenchmark(flags, LargeGpu()).value();
  const PipelineOptions& options = setup.placement.pipeline;
  EXPECT_EQ(options.weight_slot_count, 1);
  EXPECT_EQ(options.gradient_slot_count, 1);
  EXPECT_EQ(setup.setting.keep, "nothing");
  EXPECT_EQ(setup.setting.device_state_units, 0);
  EXPECT_EQ(setup.setting.bus_update_units, 0);
  EXPECT_EQ(setup.setting.without, Ablations());
}

TEST(BenchmarkSetupTest, WithoutDoubleBufferingAllElseStays) {
  BenchmarkMachine gpu = LargeGpu();
  gpu.device_bytes = int64_t{61} << 30;
  BenchmarkFlags flags;
  const BenchmarkSetup with = SetUpBenchmark(flags, gpu).value();
  flags.without = {kWithoutDoubleBuffering};
  const BenchmarkSetup without = SetUpBenchmark(flags, gpu).value();
  ASSERT_GE(with.placement.pipeline.weight_slot_count, 2);
  EXPECT_EQ(without.placement.pipeline.weight_slot_count, 1);
  EXPECT_EQ(without.setting.weight_slots, 1);
  EXPECT_FALSE(without.setting.resident_weights);
  EXPECT_EQ(without.placement.pipeline.updates, with.placement.pipeline.updates);
  EXPECT_EQ(without.placement.pipeline.keep, with.placement.pipeline.keep);
  EXPECT_EQ(without.placement.pipeline.kept_places, with.placement.pipeline.kept_places);
  EXPECT_GT(without.placement.predicted.seconds, 1.02 * with.placement.predicted.seconds);
}

TEST(BenchmarkSetupTest, GroupsOfLayersStayWithinTheDevice) {
  BenchmarkMachine gpu = LargeGpu();
  gpu.device_bytes = int64_t{60} << 30;
  for (const int interval : {2, 4, 7}) {
    BenchmarkFlags flags;
    flags.checkpoint_interval = interval;
    const BenchmarkSetup setup = SetUpBenchmark(flags, gpu).value();
    EXPECT_EQ(setup.setting.units, 28 / interval + 2);
    EXPECT_EQ(setup.setting.keep, "nothing");
    EXPECT_EQ(setup.setting.order, "layer_major");
    EXPECT_LE(MapDeviceMemory(setup.layout, setup.placement.pipeline).bytes.total(),
              gpu.device_bytes);
  }
  BenchmarkFlags flags;
  flags.checkpoint_interval = 3;
  EXPECT_EQ(SetUpBenchmark(flags, gpu).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(BenchmarkSetupTest, WhatCannotBeRunIsRefused) {
  BenchmarkFlags flags;
  BenchmarkMachine small = LargeGpu();
  small.host_bytes = int64_t{84} << 30;  // of 85.1 for weights and moments
  EXPECT_EQ(SetUpBenchmark(flags, small).status().code(), absl::StatusCode::kResourceExhausted);
  small = LargeGpu();
  small.device_bytes = int64_t{1} << 30;
  EXPECT_EQ(SetUpBenchmark(flags, small).status().code(), absl::StatusCode::kResourceExhausted);
  flags.tokens = 1000;
  EXPECT_EQ(SetUpBenchmark(flags, LargeGpu()).status().code(), absl::StatusCode::kInvalidArgument);
  flags.tokens = 4096;
  flags.micro_batch_tokens = 1000;
  EXPECT_EQ(SetUpBenchmark(flags, LargeGpu()).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(BenchmarkSetupTest, FlagsThatContradictEachOtherAreRefused) {
  const auto refuses = [](const BenchmarkFlags& flags) {
    const absl::Status status = SetUpBenchmark(flags, LargeGpu()).status();
    return status.code() == absl::StatusCode::kInvalidArgument &&
           status.message().find("contradicts") != std::string::npos;
  };
  BenchmarkFlags keeps{.keep = "all"};
  EXPECT_FALSE(refuses(keeps));
  keeps.checkpoint_interval = 2;
  EXPECT_TRUE(refuses(keeps));
  keeps.checkpoint_interval = 1;
  keeps.without = {kWithoutKeptActivations};
  EXPECT_TRUE(refuses(keeps));
  BenchmarkFlags updates{.device_state_units = 4, .without = {kWithoutDeviceOptimizer}};
  EXPECT_TRUE(refuses(updates));
  BenchmarkFlags resident{.weights = "resident", .weight_slots = 3};
  EXPECT_TRUE(refuses(resident));
  resident.weight_slots = 0;
  EXPECT_FALSE(refuses(resident));
  resident.without = {kWithoutDoubleBuffering};
  EXPECT_TRUE(refuses(resident));
}

// There the device's memory is host memory.
TEST(BenchmarkSetupTest, OfProcessorsTheDeviceCountsAsHostMemory) {
  const BenchmarkFlags flags{.shape = "qwen2.5-1.5b", .tokens = 4096, .sequence_length = 256};
  BenchmarkMachine machine{.backend = Backend::kCpu,
                           .device_bytes = int64_t{40} << 30,
                           .host_bytes = int64_t{80} << 30,
                           .speeds = {}};
  const BenchmarkSetup setup = SetUpBenchmark(flags, machine).value();
  const int64_t device_bytes =
      MapDeviceMemory(setup.layout, setup.placement.pipeline).bytes.total();
  EXPECT_GT(device_bytes, int64_t{1} << 30);
  EXPECT_GT(setup.planned_host_bytes, device_bytes + 12 * setup.config.ParameterCount());
  machine.host_bytes = setup.planned_host_bytes;
  EXPECT_TRUE(SetUpBenchmark(flags, machine).ok());
  machine.host_bytes = setup.planned_host_bytes - (int64_t{1} << 30);
  EXPECT_EQ(SetUpBenchmark(flags, machine).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace megatrain
