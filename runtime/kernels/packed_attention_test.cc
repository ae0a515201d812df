#include "runtime/kernels/packed_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "runtime/kernels/attention_reference_for_test.h"
#include "runtime/kernels/attention_run_for_test.h"

namespace megatrain {
namespace {

constexpr auto kFloat32 = ComputeDtype::kFloat32;
constexpr auto kBfloat16 = ComputeDtype::kBfloat16;
constexpr auto kDeterministic = AttentionMode::kDeterministic;

// A shape and the lengths of the documents packed one after another.
struct Case {
  const char* name;
  AttentionShape shape;
  std::vector<int32_t> lengths;
};

void PrintTo(const Case& value, std::ostream* out) { *out << value.name; }

AttentionShape Shape(ComputeDtype dtype, int heads, int kv_heads, int head_dim) {
  return {.max_tokens = 1500,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .dtype = dtype};
}

AttentionShape Deterministic(AttentionShape shape) {
  shape.mode = kDeterministic;
  return shape;
}

AttentionShape Windowed(AttentionShape shape, int window) {
  shape.window = window;
  return shape;
}

AttentionShape WithSinks(AttentionShape shape) {
  shape.sinks = true;
  return shape;
}

class Attention : public AttentionTest<Case> {
 protected:
  // Whether gradients repeat to the bit.
  bool Repeats() const { return shape().mode == kDeterministic || !CudnnServes(shape()); }

  AttentionInputs RandomInputs(const std::vector<int32_t>& lengths, uint64_t seed) const {
    return RandomAttentionInputs(shape(), lengths, seed);
  }

  void ExpectRunAgrees(const AttentionInputs& inputs) {
    ExpectAgrees(shape(), inputs, ReferenceAttention(shape(), inputs), Run(inputs));
  }
};

TEST_P(Attention, AgreesWithFloat64InOutputAndGradients) {
  const AttentionInputs inputs = RandomInputs(GetParam().lengths, 1);
  ExpectRunAgrees(inputs);
}

// The same documents in another order and one less: other offsets, and mostly the same bucket.
TEST_P(Attention, ServesAnotherBatch) {
  std::vector<int32_t> lengths = GetParam().lengths;
  const AttentionInputs first = RandomInputs(lengths, 1);
  Run(first);
  std::reverse(lengths.begin(), lengths.end());
  lengths.pop_back();
  const AttentionInputs second = RandomInputs(lengths, 7);
  ExpectRunAgrees(second);
}

TEST_P(Attention, RepeatsToTheBitAtOtherAddresses) {
  const AttentionInputs inputs = RandomInputs(GetParam().lengths, 1);
  const AttentionOutputs first = Run(inputs);
  const AttentionOutputs second = Run(inputs, 48);
  EXPECT_TRUE(first.out == second.out);
  EXPECT_TRUE(first.log_sum_exp == second.log_sum_exp);
  if (Repeats()) {
    EXPECT_TRUE(first.qkv_gradient == second.qkv_gradient);
    EXPECT_TRUE(first.sink_gradient == second.sink_gradient);
  }
}

TEST_P(Attention, AnotherDocumentChangesNoBit) {
  AttentionInputs inputs = RandomInputs(GetParam().lengths, 1);
  const AttentionOutputs before = Run(inputs);
  // All of document 1 changes.
  const int64_t begin = inputs.document_offsets[1];
  const int64_t end = inputs.document_offsets[2];
  const AttentionInputs other = RandomInputs(GetParam().lengths, 20);
  const auto replace = [&](std::vector<float>& values, const std::vector<float>& by,
                           int64_t width) {
    std::copy(by.begin() + begin * width, by.begin() + end * width, values.begin() + begin * width);
  };
  replace(inputs.qkv, other.qkv, shape().QkvWidth());
  replace(inputs.out_gradient, other.out_gradient, shape().OutWidth());
  const AttentionOutputs after = Run(inputs);
  const auto expect_same = [&](const std::vector<float>& a, const std::vector<float>& b,
                               int64_t width) {
    const int64_t tokens = inputs.document_offsets.back();
    EXPECT_TRUE(Part(a, width, 0, begin, 0, width) == Part(b, width, 0, begin, 0, width));
    EXPECT_TRUE(Part(a, width, end, tokens, 0, width) == Part(b, width, end, tokens, 0, width));
  };
  expect_same(before.out, after.out, shape().OutWidth());
  if (Repeats()) {
    expect_same(before.qkv_gradient, after.qkv_gradient, shape().QkvWidth());
  }
}

const std::vector<int32_t>& Mixed() {
  static const auto& lengths = *new std::vector<int32_t>{7, 64, 1, 1024, 200};
  return lengths;
}

// Too many documents of the longest one's padded length for the deterministic plan's memory.
std::vector<int32_t> OneLongAmongMany() {
  std::vector<int32_t> lengths(40, 5);
  lengths[2] = 900;
  return lengths;
}

INSTANTIATE_TEST_SUITE_P(
    Cases, Attention,
    testing::Values(
        Case{"FastHead128", Shape(kBfloat16, 4, 2, 128), Mixed()},
        Case{"FastHead128Grouped7", Shape(kBfloat16, 7, 1, 128), {300, 65, 128}},
        Case{"FastHead64", Shape(kBfloat16, 4, 4, 64), Mixed()},
        Case{"FastHead16", Shape(kBfloat16, 2, 1, 16), Mixed()},
        Case{"FastHead80", Shape(kBfloat16, 4, 2, 80), Mixed()},
        Case{"FastHead256", Shape(kBfloat16, 2, 1, 256), {130, 33, 70}},
        Case{"FastWindow", Windowed(Shape(kBfloat16, 4, 2, 64), 100), Mixed()},
        Case{"DeterministicHead128", Deterministic(Shape(kBfloat16, 4, 2, 128)), Mixed()},
        Case{"DeterministicHead64", Deterministic(Shape(kBfloat16, 4, 4, 64)), Mixed()},
        Case{"DeterministicWindow", Deterministic(Windowed(Shape(kBfloat16, 4, 2, 64), 100)),
             Mixed()},
        Case{"DeterministicManyDocuments", Deterministic(Shape(kBfloat16, 4, 2, 64)),
             OneLongAmongMany()},
        Case{"ExactFloat32Head128", Shape(kFloat32, 4, 2, 128), Mixed()},
        Case{"ExactFloat32Head64", Shape(kFloat32, 4, 4, 64), Mixed()},
        Case{"ExactFloat32Head16", Shape(kFloat32, 2, 1, 16), Mixed()},
        Case{"ExactFloat32Head80", Shape(kFloat32, 4, 2, 80), Mixed()},
        Case{"ExactFloat32Head256", Shape(kFloat32, 2, 1, 256), {130, 33, 70}},
        Case{"ExactFloat32Window", Windowed(Shape(kFloat32, 4, 2, 64), 100), Mixed()},
        Case{"ExactFloat32WindowOf2", Windowed(Shape(kFloat32, 2, 1, 16), 2), {5, 70, 130}},
        Case{"ExactFloat32Sinks", WithSinks(Shape(kFloat32, 4, 2, 64)), Mixed()},
        Case{"ExactFloat32SinksWindow", WithSinks(Windowed(Shape(kFloat32, 4, 2, 64), 100)),
             Mixed()},
        Case{"ExactBfloat16Head72", Shape(kBfloat16, 4, 2, 72), Mixed()},
        Case{"ExactBfloat16Sinks", WithSinks(Shape(kBfloat16, 4, 2, 128)), Mixed()}),
    [](const auto& param) { return std::string(param.param.name); });

TEST(PackedAttention, RefusesABatchItWasNotPreparedFor) {
  const AttentionShape shape = Shape(kBfloat16, 2, 1, 64);
  auto attention = MakePackedAttention(shape);
  ASSERT_TRUE(attention.ok()) << attention.status();
  const AttentionInputs inputs = RandomAttentionInputs(shape, {100, 30}, 1);
  AttentionRun run(shape, inputs);
  EXPECT_EQ((*attention)->Forward(run.Tensors(), run.Batch(), run.Context()).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(
      (*attention)
          ->Prepare(
              {.tokens = shape.max_tokens + 1, .documents = 1, .longest = shape.max_tokens + 1})
          .code(),
      absl::StatusCode::kInvalidArgument);
}

TEST(PackedAttention, RefusesShapesItCannotServe) {
  EXPECT_EQ(MakePackedAttention(Shape(kBfloat16, 3, 2, 64)).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MakePackedAttention(Shape(kBfloat16, 2, 2, 264)).status().code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_EQ(MakePackedAttention(Shape(kBfloat16, 2, 2, 20)).status().code(),
            absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace megatrain
