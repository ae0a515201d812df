#include "runtime/planner/planner.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/config/shapes.h"
#include "runtime/planner/machine_file.h"

namespace megatrain {
namespace {

constexpr int64_t kGibibyte = int64_t{1} << 30;

// The config.json of a Qwen2.5 model of that shape.
std::string QwenJson(int64_t d, int64_t layers, int64_t heads, int64_t kv_heads, int64_t ff) {
  return "{\"architectures\":[\"Qwen2ForCausalLM\"],\"model_type\":\"qwen2\",\"vocab_size\":152064,"
         "\"hidden_act\":\"silu\",\"rms_norm_eps\":1e-6,\"rope_theta\":1000000.0,"
         "\"max_position_embeddings\":32768,\"tie_word_embeddings\":false,\"hidden_size\":" +
         std::to_string(d) + ",\"num_hidden_layers\":" + std::to_string(layers) +
         ",\"num_attention_heads\":" + std::to_string(heads) +
         ",\"num_key_value_heads\":" + std::to_string(kv_heads) +
         ",\"intermediate_size\":" + std::to_string(ff) + "}";
}

const std::string& GptOss120bJson() {
  static const auto& json = *new std::string(
      "{\"architectures\":[\"GptOssForCausalLM\"],\"model_type\":\"gpt_oss\",\"vocab_size\":201088,"
      "\"hidden_size\":2880,\"num_hidden_layers\":36,\"num_attention_heads\":64,"
      "\"num_key_value_heads\":8,\"head_dim\":64,\"intermediate_size\":2880,"
      "\"num_local_experts\":128,\"num_experts_per_tok\":4,\"attention_bias\":true,"
      "\"max_position_embeddings\":131072,\"rms_norm_eps\":1e-5,\"sliding_window\":128,"
      "\"rope_theta\":150000,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":32.0,"
      "\"beta_fast\":32.0,\"beta_slow\":1.0,\"truncate\":false,"
      "\"original_max_position_embeddings\":4096},\"hidden_act\":\"silu\","
      "\"tie_word_embeddings\":false}");
  return json;
}

std::string SmolLm2Json() {
  return "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"vocab_size\":49152,"
         "\"hidden_size\":576,\"intermediate_size\":1536,\"num_hidden_layers\":30,"
         "\"num_attention_heads\":9,\"num_key_value_heads\":3,\"hidden_act\":\"silu\","
         "\"max_position_embeddings\":8192,\"rope_theta\":100000,\"rms_norm_eps\":1e-5,"
         "\"tie_word_embeddings\":true}";
}

ModelConfig Parse(const std::string& json) {
  absl::StatusOr<ModelConfig> config = ParseModelConfig(json);
  EXPECT_TRUE(config.ok()) << config.status();
  return *std::move(config);
}

int64_t SizeOf(const std::vector<MemoryItem>& items, const std::string& kind) {
  for (const MemoryItem& item : items) {
    if (item.kind == kind) {
      return item.size_bytes;
    }
  }
  ADD_FAILURE() << "no item " << kind;
  return 0;
}

// One H200 on a host of 1.5 TiB of which 5 % are kept for others.
MachineProfile LargeHost() {
  return {.backend = Backend::kCuda,
          .host_available_bytes = 1536 * kGibibyte / 100 * 95,
          .device_memory_bytes = 139 * kGibibyte,
          .engine_baseline_bytes = 2 * kGibibyte};
}

MachineProfile SmallHost(int64_t available_bytes) {
  return {.backend = Backend::kCpu,
          .host_available_bytes = available_bytes,
          .device_memory_bytes = 0,
          .engine_baseline_bytes = kGibibyte / 4};
}

JobShape Bfloat16Job(int64_t rows, int64_t micro_rows) {
  return {.batch_rows = rows,
          .micro_batch_rows = micro_rows,
          .max_sequence_length = 1024,
          .compute_dtype = ComputeDtype::kBfloat16};
}

TEST(PlannerTest, StateTakesTwelveToSixteenBytesAParameter) {
  const ModelConfig config = Parse(SmolLm2Json());
  ASSERT_EQ(config.ParameterCount(), 134515008);
  const Plan plan = PlanJob(config, JobShape{}, SmallHost(20 * kGibibyte));
  EXPECT_TRUE(plan.fits) << plan.verdict;
  EXPECT_TRUE(plan.trainable);
  const double parameters = static_cast<double>(plan.parameter_count);
  const auto expect_near = [&](const std::string& kind, double bytes_per_parameter) {
    const double bytes = static_cast<double>(SizeOf(plan.host, kind));
    EXPECT_GE(bytes, parameters * bytes_per_parameter) << kind;
    EXPECT_LE(bytes, parameters * bytes_per_parameter * 1.001) << kind;
  };
  expect_near("weights_hi", 2);
  expect_near("weights_lo", 2);
  expect_near("adam_m", 4);
  expect_near("adam_v", 4);
  expect_near("gradients", 4);
  EXPECT_EQ(SizeOf(plan.host, "device_arena"), plan.device_bytes);
  int64_t sum = 0;
  for (const MemoryItem& item : plan.host) {
    EXPECT_GT(item.size_bytes, 0) << item.kind;
    sum += item.size_bytes;
  }
  EXPECT_EQ(sum, plan.host_bytes);
}

TEST(PlannerTest, ARefusalNamesKindsNumbersAndWhatWouldFit) {
  const ModelConfig config = Parse(SmolLm2Json());
  JobShape shape{.batch_rows = 64, .max_sequence_length = 8192};
  const MachineProfile machine = SmallHost(6 * kGibibyte);
  const Plan plan = PlanJob(config, shape, machine);
  EXPECT_FALSE(plan.fits);
  for (const std::string part :
       {"host memory: needs ", "adam_m 513", "6.00 GiB can be used",
        "train.max_sequence_length of at most ", "train.batch_rows of at most "}) {
    EXPECT_NE(plan.verdict.find(part), std::string::npos) << part << " in " << plan.verdict;
  }
  // What it offers does fit, and one more does not.
  const std::string key = "train.max_sequence_length of at most ";
  shape.max_sequence_length = std::stoll(plan.verdict.substr(plan.verdict.find(key) + key.size()));
  EXPECT_TRUE(PlanJob(config, shape, machine).fits) << plan.verdict;
  ++shape.max_sequence_length;
  EXPECT_FALSE(PlanJob(config, shape, machine).fits) << plan.verdict;
}

TEST(PlannerTest, AModelTooLargeIsToldTheLargestThatFits) {
  const Plan plan =
      PlanJob(Parse(QwenJson(3584, 28, 28, 4, 18944)), JobShape{}, SmallHost(20 * kGibibyte));
  EXPECT_FALSE(plan.fits);
  EXPECT_NE(plan.verdict.find("billion parameters"), std::string::npos) << plan.verdict;
}

TEST(PlannerTest, QwenModelsFitALargeHost) {
  struct Shape {
    int64_t d, layers, heads, kv_heads, ff;
    double billions;
  };
  const std::vector<Shape> shapes = {{3584, 28, 28, 4, 18944, 7.616},
                                     {5120, 48, 40, 8, 13824, 14.770},
                                     {5120, 64, 40, 8, 27648, 32.764},
                                     {8192, 80, 64, 8, 29568, 72.706}};
  for (const Shape& s : shapes) {
    const ModelConfig config = Parse(QwenJson(s.d, s.layers, s.heads, s.kv_heads, s.ff));
    EXPECT_NEAR(static_cast<double>(config.ParameterCount()) / 1e9, s.billions, 0.001);
    const Plan plan = PlanJob(config, Bfloat16Job(32, 8), LargeHost());
    EXPECT_TRUE(plan.fits) << plan.verdict;
    EXPECT_TRUE(plan.trainable) << plan.verdict;
    int64_t stashed_bytes = 0;
    for (const MemoryItem& item : plan.host) {
      stashed_bytes += item.kind == "stashed_activations" ? item.size_bytes : 0;
    }
    const double per_parameter =
        static_cast<double>(plan.host_bytes - stashed_bytes) / (s.billions * 1e9);
    EXPECT_GE(per_parameter, 12.0) << plan.verdict;
    EXPECT_LE(per_parameter, 14.5) << plan.verdict;
  }
}

// operations.md's question: 14 bytes a parameter do not fit 1.5 TiB less a reserve, 12 do, and the
// rest of the gradients has room on the GPU.
TEST(PlannerTest, A120bMixtureFitsWhenGradientsMayStayOnTheGpu) {
  const ModelConfig config = Parse(GptOss120bJson());
  EXPECT_NEAR(static_cast<double>(config.ParameterCount()) / 1e9, 116.83, 0.01);
  const Plan plan = PlanJob(config, Bfloat16Job(8, 1), LargeHost());
  EXPECT_TRUE(plan.fits) << plan.verdict;
  EXPECT_GT(SizeOf(plan.device, "kept_gradients"), 0);
  EXPECT_LE(plan.host_bytes, plan.host_available_bytes);
  EXPECT_LE(plan.device_bytes, plan.device_available_bytes);
  EXPECT_FALSE(plan.trainable);
  EXPECT_NE(plan.verdict.find("cannot be trained yet"), std::string::npos) << plan.verdict;
  EXPECT_NE(plan.verdict.find(" wait there, not on the host"), std::string::npos) << plan.verdict;
  EXPECT_NEAR(static_cast<double>(plan.active_parameter_count) / 1e9, 5.7, 0.1);

  MachineProfile half = LargeHost();
  half.host_available_bytes /= 2;
  EXPECT_FALSE(PlanJob(config, Bfloat16Job(8, 1), half).fits);
}

TEST(PlannerTest, OrderTakesTheLesserMemoryUnlessAsked) {
  const ModelConfig config = Parse(SmolLm2Json());
  JobShape shape{.batch_rows = 8, .micro_batch_rows = 1, .max_sequence_length = 32};
  const MachineProfile machine = SmallHost(64 * kGibibyte);
  EXPECT_EQ(PlanJob(config, shape, machine).pipeline.order, MicroBatchOrder::kLayerMajor);
  shape.batch_rows = 256;
  shape.max_sequence_length = 2048;
  const Plan automatic = PlanJob(config, shape, machine);
  EXPECT_EQ(automatic.pipeline.order, MicroBatchOrder::kMicroBatchMajor);
  shape.order = MicroBatchOrder::kLayerMajor;
  const Plan asked = PlanJob(config, shape, machine);
  EXPECT_EQ(asked.pipeline.order, MicroBatchOrder::kLayerMajor);
  EXPECT_LT(automatic.device_bytes, asked.device_bytes);
}

TEST(PlannerTest, AGpuIsFilledWithWhatMakesTheStepFast) {
  const ModelConfig config = Parse(QwenJson(3584, 28, 28, 4, 18944));
  const Plan plan = PlanJob(config, Bfloat16Job(64, 0), LargeHost());
  EXPECT_TRUE(plan.fits) << plan.verdict;
  EXPECT_EQ(plan.pipeline.order, MicroBatchOrder::kMicroBatchMajor);
  EXPECT_GT(SizeOf(plan.device, "states"), 50 * kGibibyte);
  EXPECT_LT(plan.micro_batch_rows, 64);
  EXPECT_EQ(plan.limits.tokens, plan.micro_batch_rows * 1024);
  EXPECT_EQ(plan.limits.documents, plan.micro_batch_rows);
  EXPECT_GT(plan.predicted.seconds, 4);
  EXPECT_LT(plan.predicted.seconds, 6);

  JobShape packed = Bfloat16Job(64, 4);
  packed.packing = true;
  EXPECT_EQ(PlanJob(config, packed, LargeHost()).micro_batch_rows, 4);
  EXPECT_EQ(PlanJob(config, packed, LargeHost()).limits.documents, 4 * 512);
}

TEST(PlannerTest, WhatAGpuCannotComputeIsNotTrainableThere) {
  const ModelConfig config = Parse(QwenJson(3584, 2, 28, 4, 18942));  // no multiple of 8
  EXPECT_TRUE(PlanJob(config, Bfloat16Job(8, 1), SmallHost(512 * kGibibyte)).trainable);
  const Plan plan = PlanJob(config, Bfloat16Job(8, 1), LargeHost());
  EXPECT_FALSE(plan.trainable);
  EXPECT_NE(plan.verdict.find("intermediate_size"), std::string::npos) << plan.verdict;
}

TEST(PlannerTest, KnownDataMakesThePlanSmaller) {
  const ModelConfig config = Parse(SmolLm2Json());
  JobShape shape;
  const Plan unknown = PlanJob(config, shape, SmallHost(20 * kGibibyte));
  shape.longest_row_tokens = 33;
  shape.row_count = 1280;
  const Plan known = PlanJob(config, shape, SmallHost(20 * kGibibyte));
  EXPECT_LT(known.host_bytes, unknown.host_bytes);
  EXPECT_EQ(known.pipeline.max_micro_batch_tokens, int64_t{8} * 33);
  shape.validation_row_count = 1000;
  EXPECT_GT(PlanJob(config, shape, SmallHost(20 * kGibibyte)).host_bytes,
            known.host_bytes + 1000 * 8);
  shape.packing = true;
  EXPECT_EQ(PlanJob(config, shape, SmallHost(20 * kGibibyte)).pipeline.max_micro_batch_tokens,
            8 * 1024);
}

TEST(PlannerTest, LimitsOfTheJobCount) {
  const ModelConfig config = Parse(SmolLm2Json());
  JobShape shape{.host_limit_bytes = 2 * kGibibyte};
  const Plan host = PlanJob(config, shape, SmallHost(20 * kGibibyte));
  EXPECT_FALSE(host.fits);
  EXPECT_EQ(host.host_available_bytes, 2 * kGibibyte);
  shape.host_limit_bytes = 0;
  shape.device_limit_bytes = 1 << 20;
  const Plan device = PlanJob(config, shape, SmallHost(20 * kGibibyte));
  EXPECT_FALSE(device.fits);
  EXPECT_NE(device.verdict.find("device memory"), std::string::npos) << device.verdict;
}

// The number of MiB after a key of a verdict; 0 when it has none.
int64_t MebibytesAfter(const std::string& verdict, const std::string& key) {
  const size_t place = verdict.find(key);
  return place == std::string::npos ? 0 : std::stoll(verdict.substr(place + key.size())) << 20;
}

TEST(PlannerTest, ARefusalOfADeviceLimitSaysTheLeastOneAndWhatOfItIsNotThePlans) {
  const ModelConfig config = Parse(QwenJson(3584, 28, 28, 4, 18944));
  MachineProfile machine = LargeHost();
  machine.device_overhead_bytes = 2 * kGibibyte;
  JobShape shape = Bfloat16Job(64, 0);
  shape.device_limit_bytes = 2 * kGibibyte;
  const Plan plan = PlanJob(config, shape, machine);
  EXPECT_FALSE(plan.fits);
  EXPECT_EQ(plan.predicted.seconds, 0);
  EXPECT_NE(plan.verdict.find("2.00 GiB, a context and libraries take 2.00 GiB"), std::string::npos)
      << plan.verdict;
  EXPECT_EQ(plan.verdict.find("that host memory"), std::string::npos) << plan.verdict;
  shape.device_limit_bytes = MebibytesAfter(plan.verdict, "placement.hbm_limit of at least ");
  EXPECT_GT(shape.device_limit_bytes, 2 * kGibibyte) << plan.verdict;
  EXPECT_TRUE(PlanJob(config, shape, machine).fits) << plan.verdict;
  shape.device_limit_bytes -= kGibibyte / 16;
  EXPECT_FALSE(PlanJob(config, shape, machine).fits) << plan.verdict;
}

// 7.6 billion gradients of 2 bytes have room neither on the host nor beside a step on the device.
TEST(PlannerTest, ADeviceThatLacksMemoryForTheHostsSakeAsksForHostMemory) {
  const ModelConfig config = Parse(QwenJson(3584, 28, 28, 4, 18944));
  MachineProfile machine = LargeHost();
  machine.device_memory_bytes = 10 * kGibibyte;
  JobShape shape = Bfloat16Job(64, 0);
  shape.host_limit_bytes = 102 * kGibibyte;
  const Plan limited = PlanJob(config, shape, machine);
  EXPECT_NE(limited.verdict.find("device memory: needs"), std::string::npos) << limited.verdict;
  shape.host_limit_bytes = MebibytesAfter(limited.verdict, "placement.host_limit of at least ");
  EXPECT_GT(shape.host_limit_bytes, 102 * kGibibyte) << limited.verdict;
  EXPECT_TRUE(PlanJob(config, shape, machine).fits) << limited.verdict;
  shape.host_limit_bytes -= kGibibyte / 16;
  EXPECT_FALSE(PlanJob(config, shape, machine).fits) << limited.verdict;

  shape.host_limit_bytes = 0;
  machine.host_available_bytes = 102 * kGibibyte;
  const Plan small = PlanJob(config, shape, machine);
  EXPECT_NE(small.verdict.find(" more of host memory"), std::string::npos) << small.verdict;
}

// The engine's context and libraries are within the job's limit too.
TEST(PlannerTest, ALimitOnAGpuCountsWhatIsNotThePlans) {
  const ModelConfig config = Parse(SmolLm2Json());
  MachineProfile machine = LargeHost();
  machine.device_overhead_bytes = 2 * kGibibyte;
  JobShape shape = Bfloat16Job(8, 1);
  shape.device_limit_bytes = 24 * kGibibyte;
  EXPECT_EQ(PlanJob(config, shape, machine).device_available_bytes, 22 * kGibibyte);
  shape.device_limit_bytes = kGibibyte;
  const Plan plan = PlanJob(config, shape, machine);
  EXPECT_EQ(plan.device_available_bytes, 0);
  EXPECT_FALSE(plan.fits);
  shape.device_limit_bytes = 0;
  EXPECT_EQ(PlanJob(config, shape, machine).device_available_bytes, 139 * kGibibyte);
}

// Steps of a model on a machine as one limit rises, in GiB, the other one being fixed.
struct Rising {
  const char* model;
  const char* machine;
  int64_t rows;
  int64_t JobShape::* rises;
  std::vector<int64_t> gibibytes;
  int64_t JobShape::* fixed;
  int64_t fixed_gibibytes;  // 0: no limit
};

TEST(PlannerTest, MoreMemoryIsNeverSlower) {
  const auto host = &JobShape::host_limit_bytes;
  const auto device = &JobShape::device_limit_bytes;
  for (const Rising& rising :
       {Rising{"qwen2.5-14b", "a100-pcie", 16, device, {12, 16, 20, 28, 40, 56, 60, 64}, host, 0},
        Rising{"qwen2.5-32b", "a100-pcie", 8, device, {20, 24, 28, 32, 36, 40}, host, 0},
        Rising{"qwen2.5-32b", "h200-1536g", 3, device, {64, 72, 80, 88}, host, 0},
        Rising{"qwen2.5-7b", "h200-1536g", 16, host, {98, 102, 106, 110, 122}, device, 24},
        Rising{"qwen2.5-7b", "h200-1536g", 4, host, {98, 102, 104, 110}, device, 64}}) {
    const ModelConfig config = ShapeByName(rising.model).value();
    const MachineProfile machine = MachineByName(rising.machine).value().profile;
    JobShape shape = Bfloat16Job(rising.rows, 0);
    shape.*rising.fixed = rising.fixed_gibibytes * kGibibyte;
    double best_seconds = 1e9;
    for (const int64_t gibibytes : rising.gibibytes) {
      shape.*rising.rises = gibibytes * kGibibyte;
      const Plan plan = PlanJob(config, shape, machine);
      ASSERT_TRUE(plan.fits) << rising.model << " " << gibibytes << ": " << plan.verdict;
      EXPECT_LE(plan.predicted.seconds, best_seconds * 1.005) << rising.model << " " << gibibytes;
      best_seconds = std::min(best_seconds, plan.predicted.seconds);
    }
  }
}

TEST(PlannerTest, AbsurdCountsDoNotFitAndDoNotCrash) {
  const ModelConfig config = Parse(SmolLm2Json());
  const std::vector<JobShape> shapes = {{.batch_rows = 0},
                                        {.batch_rows = -1},
                                        {.batch_rows = INT64_MAX},
                                        {.max_sequence_length = INT64_MAX},
                                        {.batch_rows = INT64_MAX, .max_sequence_length = INT64_MAX},
                                        {.micro_batch_rows = -3},
                                        {.longest_row_tokens = -1},
                                        {.weight_slot_count = -1},
                                        {.batch_rows = 1 << 20, .max_sequence_length = 1 << 20}};
  for (const JobShape& shape : shapes) {
    const Plan plan = PlanJob(config, shape, LargeHost());
    EXPECT_FALSE(plan.fits);
    EXPECT_NE(plan.verdict.find("out of range"), std::string::npos) << plan.verdict;
  }
}

TEST(PlannerTest, BytesInWords) {
  EXPECT_EQ(FormatBytes(3 * kGibibyte / 2), "1.50 GiB");
  EXPECT_EQ(FormatBytes(3 << 19), "1.5 MiB");
}

}  // namespace
}  // namespace megatrain
