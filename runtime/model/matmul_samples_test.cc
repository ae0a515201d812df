#include "runtime/model/matmul_samples.h"

#include <gtest/gtest.h>

#include <string>

#include "runtime/config/shapes.h"

namespace megatrain {
namespace {

constexpr MicroBatchLimits kLimits{.tokens = 8192, .document_tokens = 1024, .documents = 8};

std::vector<MatmulSample> SamplesOf(const std::string& shape, ComputeDtype dtype,
                                    const MicroBatchLimits& limits = kLimits) {
  const auto config = ShapeByName(shape);
  EXPECT_TRUE(config.ok()) << config.status();
  const auto samples = MatmulSamplesOf(
      MakeCudaShape(*config, dtype, AttentionMode::kFast, limits.tokens), config->qkv_bias, limits);
  EXPECT_TRUE(samples.ok()) << samples.status();
  return *samples;
}

MatmulSample Find(const std::vector<MatmulSample>& samples, const std::string& name) {
  for (const MatmulSample& sample : samples) {
    if (sample.name == name) {
      return sample;
    }
  }
  ADD_FAILURE() << "no " << name;
  return {};
}

// In column-major, as cuBLASLt takes them: m is the width of what is written, n its rows.
TEST(MatmulSamples, AreALayersAndTheHeadsProducts) {
  const auto samples = SamplesOf("qwen2.5-7b", ComputeDtype::kBfloat16);
  EXPECT_EQ(samples.size(), 15U);
  const MatmulSample qkv = Find(samples, "qkv forward");
  EXPECT_EQ(qkv.problem.m, 4608);
  EXPECT_EQ(qkv.problem.n, 8192);
  EXPECT_EQ(qkv.problem.k, 3584);
  EXPECT_TRUE(qkv.problem.has_bias);
  EXPECT_FALSE(qkv.accumulates);
  const MatmulSample down = Find(samples, "down forward");
  EXPECT_EQ(down.problem.m, 3584);
  EXPECT_EQ(down.problem.k, 18944);
  EXPECT_TRUE(down.accumulates);
  const MatmulSample gate_up = Find(samples, "gate_up dx");
  EXPECT_EQ(gate_up.problem.m, 3584);
  EXPECT_EQ(gate_up.problem.k, 37888);
  EXPECT_FALSE(gate_up.accumulates);
  const MatmulSample output = Find(samples, "output dW");
  EXPECT_EQ(output.problem.n, 3584);
  EXPECT_EQ(output.problem.k, 8192);
  EXPECT_EQ(output.problem.output_dtype, ComputeDtype::kFloat32);
  EXPECT_TRUE(output.accumulates);
}

TEST(MatmulSamples, TheHeadComesInChunks) {
  const auto samples = SamplesOf("qwen2.5-7b", ComputeDtype::kBfloat16);
  const int64_t chunk = HeadChunkRowsOnCuda(152064);
  const MatmulSample whole = Find(samples, "head of " + std::to_string(chunk) + " forward");
  EXPECT_EQ(whole.problem.m, 152064);
  EXPECT_EQ(whole.problem.n, chunk);
  EXPECT_EQ(whole.problem.output_dtype, ComputeDtype::kFloat32);
}

// A rest of half a chunk or more takes the chunk's choice.
TEST(MatmulSamples, TheRestOfTheHeadIsOneOfItsOwnWhereItIsSmall) {
  const int64_t chunk = HeadChunkRowsOnCuda(152064);
  const auto samples_for = [](int64_t tokens) {
    return SamplesOf("qwen2.5-7b", ComputeDtype::kBfloat16,
                     {.tokens = tokens, .document_tokens = tokens, .documents = 1});
  };
  const auto small = samples_for(2 * chunk + chunk / 2);
  EXPECT_EQ(small.size(), 18U);
  const int64_t rest = chunk / 2 - 1;
  const MatmulSample last = Find(small, "head of " + std::to_string(rest) + " dx");
  EXPECT_EQ(last.problem.n, rest);
  EXPECT_EQ(last.problem.k, 152064);
  EXPECT_EQ(samples_for(2 * chunk + chunk / 2 + 1).size(), 15U);
  EXPECT_EQ(samples_for(chunk + 1).size(), 15U) << "no rest";
}

TEST(MatmulSamples, FloatModelsMultiplyFloats) {
  for (const MatmulSample& sample : SamplesOf("qwen2.5-1.5b", ComputeDtype::kFloat32)) {
    EXPECT_EQ(sample.problem.input_dtype, ComputeDtype::kFloat32) << sample.name;
    EXPECT_EQ(sample.problem.output_dtype, ComputeDtype::kFloat32) << sample.name;
  }
}

}  // namespace
}  // namespace megatrain
