// Micro-batches whose documents all have one length, for which cuDNN has plans of their own.

#include <gtest/gtest.h>

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/kernels/attention_reference_for_test.h"
#include "runtime/kernels/attention_run_for_test.h"
#include "runtime/kernels/packed_attention.h"

namespace megatrain {
namespace {

struct Case {
  const char* name;
  AttentionShape shape;
  int32_t documents;
  int32_t length;

  std::vector<int32_t> Even() const { return std::vector<int32_t>(documents, length); }
  // As many tokens; where there are several documents, as long a longest one.
  std::vector<int32_t> Uneven() const {
    std::vector<int32_t> lengths = Even();
    lengths.back() -= 20;
    lengths.push_back(20);
    return lengths;
  }
};

void PrintTo(const Case& value, std::ostream* out) { *out << value.name; }

Case Fast(const char* name, int heads, int kv_heads, int head_dim, int32_t documents,
          int32_t length, int window = 0) {
  return {.name = name,
          .shape = {.max_tokens = int64_t{documents} * length,
                    .heads = heads,
                    .kv_heads = kv_heads,
                    .head_dim = head_dim,
                    .window = window,
                    .dtype = ComputeDtype::kBfloat16},
          .documents = documents,
          .length = length};
}

Case Deterministic(Case of) {
  of.shape.mode = AttentionMode::kDeterministic;
  return of;
}

class EvenAttention : public AttentionTest<Case> {
 protected:
  void ExpectSame(const AttentionOutputs& first, const AttentionOutputs& second) const {
    EXPECT_TRUE(first.out == second.out);
    EXPECT_TRUE(first.log_sum_exp == second.log_sum_exp);
    if (shape().mode == AttentionMode::kDeterministic) {
      EXPECT_TRUE(first.qkv_gradient == second.qkv_gradient);
    }
  }
};

TEST_P(EvenAttention, AgreesWithFloat64OnAPlanOfItsOwn) {
  const AttentionInputs inputs = RandomAttentionInputs(shape(), GetParam().Even(), 1);
  const AttentionResults expected = ReferenceAttention(shape(), inputs);
  const AttentionOutputs outputs = Run(inputs);
  ExpectAgrees(shape(), inputs, expected, outputs);
  EXPECT_TRUE(IsHeadMajor(inputs, expected, outputs))
      << "cuDNN refused the even plan: results are those of the ragged one, but slow";
}

// Both plans are ready from then on, and neither serves the other's batches.
TEST_P(EvenAttention, TakesTurnsWithUnevenBatches) {
  const AttentionInputs even = RandomAttentionInputs(shape(), GetParam().Even(), 1);
  const AttentionInputs uneven = RandomAttentionInputs(shape(), GetParam().Uneven(), 7);
  const AttentionOutputs first = Run(even);
  const AttentionOutputs between = Run(uneven);
  ExpectAgrees(shape(), uneven, ReferenceAttention(shape(), uneven), between);
  ExpectSame(first, Run(even, 48));
  ExpectSame(between, Run(uneven, 48));
}

INSTANTIATE_TEST_SUITE_P(
    Cases, EvenAttention,
    testing::Values(
        Fast("FastHead128", 4, 2, 128, 2, 512), Fast("FastHead128Grouped7", 7, 1, 128, 3, 512),
        Fast("FastHead64", 4, 4, 64, 3, 512), Fast("FastHead64Grouped", 4, 2, 64, 2, 512),
        Fast("FastOneDocument", 4, 2, 128, 1, 1024), Fast("FastThirteen", 2, 1, 64, 13, 1024),
        Fast("FastWindow", 4, 2, 64, 3, 512, 100),
        Fast("FastWindowHead128", 2, 2, 128, 2, 512, 100),
        Deterministic(Fast("DeterministicHead128", 4, 2, 128, 2, 512)),
        Deterministic(Fast("DeterministicHead64", 4, 4, 64, 3, 512)),
        Deterministic(Fast("DeterministicOneDocument", 4, 4, 128, 1, 1024)),
        Deterministic(Fast("DeterministicThirteen", 2, 1, 64, 13, 1024)),
        Deterministic(Fast("DeterministicWindow", 4, 2, 64, 2, 512, 100))),
    [](const auto& param) { return std::string(param.param.name); });

// Whose plans are those of uneven batches.
TEST(EvenAttentionPlans, OtherHeadSizesAgreeToo) {
  for (const int head_dim : {16, 80, 256}) {
    SCOPED_TRACE(head_dim);
    const Case work = Fast("", 2, 1, head_dim, 2, 512);
    auto attention = MakePackedAttention(work.shape);
    ASSERT_TRUE(attention.ok()) << attention.status();
    const AttentionInputs inputs = RandomAttentionInputs(work.shape, work.Even(), 1);
    AttentionRun run(work.shape, inputs);
    ASSERT_EQ((*attention)->Prepare(CountsOf(inputs)), absl::OkStatus());
    ExpectAgrees(work.shape, inputs, ReferenceAttention(work.shape, inputs), run.Run(**attention));
  }
}

TEST(EvenAttentionPlans, RefusesAnEvenBatchThatWasPreparedAsAnUnevenOne) {
  // Without the difference both would have the bucket of 4 documents of up to 512 tokens.
  const Case work = Fast("", 2, 1, 64, 3, 512);
  auto attention = MakePackedAttention(work.shape);
  ASSERT_TRUE(attention.ok()) << attention.status();
  const AttentionInputs uneven = RandomAttentionInputs(work.shape, work.Uneven(), 1);
  ASSERT_EQ((*attention)->Prepare(CountsOf(uneven)), absl::OkStatus());
  const AttentionInputs even = RandomAttentionInputs(work.shape, work.Even(), 1);
  AttentionRun run(work.shape, even);
  EXPECT_EQ((*attention)->Forward(run.Tensors(), run.Batch(), run.Context()).code(),
            absl::StatusCode::kFailedPrecondition);
  ASSERT_EQ((*attention)->Prepare(CountsOf(even)), absl::OkStatus());
  EXPECT_EQ((*attention)->Forward(run.Tensors(), run.Batch(), run.Context()), absl::OkStatus());
}

}  // namespace
}  // namespace megatrain
