#include "runtime/kernels/matmul_tuner.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace megatrain {
namespace {

// One of each kind of product, for t = 1024.
std::vector<MatmulSample> Samples(ComputeDtype dtype) {
  MatmulProblem forward{.m = 4096,
                        .n = 1024,
                        .k = 2048,
                        .transpose_a = true,
                        .transpose_b = false,
                        .lda = 2048,
                        .ldb = 2048,
                        .ldc = 4096,
                        .ldd = 4096,
                        .input_dtype = dtype,
                        .output_dtype = dtype,
                        .has_bias = true};
  MatmulProblem gradient{.m = 2048,
                         .n = 4096,
                         .k = 1024,
                         .transpose_a = false,
                         .transpose_b = true,
                         .lda = 2048,
                         .ldb = 4096,
                         .ldc = 2048,
                         .ldd = 2048,
                         .input_dtype = dtype,
                         .output_dtype = ComputeDtype::kFloat32,
                         .has_bias = false};
  return {{"forward", forward, false}, {"dW", gradient, true}};
}

int64_t FreeBytes() {
  size_t free = 0;
  size_t total = 0;
  EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  return static_cast<int64_t>(free);
}

TEST(MatmulTuner, ChoosesForEverySampleAndGivesItsMemoryBack) {
  // The library's own memory and the kernels' code stay.
  ASSERT_TRUE(MeasureMatmulChoices(Samples(ComputeDtype::kBfloat16)).ok());
  const int64_t free_bytes = FreeBytes();
  for (const ComputeDtype dtype : {ComputeDtype::kBfloat16, ComputeDtype::kFloat32}) {
    const std::vector<MatmulSample> samples = Samples(dtype);
    const auto choices = MeasureMatmulChoices(samples);
    ASSERT_TRUE(choices.ok()) << choices.status();
    EXPECT_EQ(choices->size(), samples.size());
    for (const MatmulSample& sample : samples) {
      const auto choice = choices->find(sample.problem);
      ASSERT_NE(choice, choices->end()) << sample.name;
      EXPECT_GE(choice->second, 0);
      EXPECT_LT(choice->second, kMatmulCandidates);
    }
  }
  constexpr int64_t kCodeBytes = int64_t{32} << 20;  // less than kMatmulScratchBytes alone
  EXPECT_GE(FreeBytes(), free_bytes - kCodeBytes);
}

TEST(MatmulTuner, RefusesWhatTheDeviceHasNoMemoryFor) {
  std::vector<MatmulSample> samples = Samples(ComputeDtype::kBfloat16);
  samples[0].problem.m = int64_t{1} << 31;
  samples[0].problem.ldc = samples[0].problem.ldd = samples[0].problem.m;
  EXPECT_EQ(MeasureMatmulChoices(samples).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_TRUE(MeasureMatmulChoices(Samples(ComputeDtype::kBfloat16)).ok());
}

TEST(MatmulTuner, TheMachineHasANameAndAVersion) {
  const auto machine = ReadMatmulMachine();
  ASSERT_TRUE(machine.ok()) << machine.status();
  EXPECT_FALSE(machine->gpu.empty());
  EXPECT_GT(machine->library_version, 100000);
}

}  // namespace
}  // namespace megatrain
