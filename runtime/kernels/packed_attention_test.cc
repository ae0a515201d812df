#include "runtime/kernels/packed_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "runtime/kernels/attention_reference_for_test.h"
#include "runtime/kernels/device_array_for_test.h"

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

AttentionInputs RandomInputs(const AttentionShape& shape, const std::vector<int32_t>& lengths,
                             uint64_t seed) {
  AttentionInputs inputs;
  inputs.document_offsets.resize(lengths.size() + 1);
  std::partial_sum(lengths.begin(), lengths.end(), inputs.document_offsets.begin() + 1);
  const int64_t tokens = inputs.document_offsets.back();
  inputs.qkv = RandomNumbers(shape.dtype, tokens * shape.QkvWidth(), seed);
  inputs.out_gradient = RandomNumbers(shape.dtype, tokens * shape.OutWidth(), seed + 1);
  if (shape.sinks) {
    inputs.sinks = RandomNumbers(kFloat32, shape.heads, seed + 2);
  }
  return inputs;
}

struct Outputs {
  std::vector<float> out;
  std::vector<float> log_sum_exp;
  std::vector<float> qkv_gradient;
  std::vector<float> sink_gradient;
};

// One forward and backward with poisoned outputs and scratch memory, everything moved by
// `shift_bytes`. Sink gradients start at 1, to show that they are added to.
class GpuRun {
 public:
  GpuRun(const AttentionShape& shape, const AttentionInputs& inputs, int64_t shift_bytes = 0)
      : shape_(shape),
        inputs_(inputs),
        qkv_(shape.dtype, inputs.qkv, shift_bytes),
        out_gradient_(shape.dtype, inputs.out_gradient, shift_bytes),
        sinks_(shape.sinks ? inputs.sinks : std::vector<float>(shape.heads, 0), shift_bytes),
        out_(shape.dtype, Tokens() * shape.OutWidth(), shift_bytes),
        log_sum_exp_(Tokens() * shape.heads, shift_bytes),
        qkv_gradient_(shape.dtype, Tokens() * shape.QkvWidth(), shift_bytes),
        sink_gradient_(std::vector<float>(shape.heads, 1), shift_bytes),
        scratch_(AttentionScratchBytes(shape)),
        tables_(AttentionTableBytes(shape, Tokens(), Documents())) {
    std::vector<unsigned char> tables(tables_.count());
    FillAttentionTables(shape, inputs.document_offsets, tables.data());
    tables_.Upload(tables);
  }

  int64_t Tokens() const { return inputs_.document_offsets.back(); }
  int64_t Documents() const { return std::ssize(inputs_.document_offsets) - 1; }
  AttentionBatch Batch() {
    int32_t longest = 0;
    for (int64_t i = 0; i < Documents(); ++i) {
      longest = std::max(longest, inputs_.document_offsets[i + 1] - inputs_.document_offsets[i]);
    }
    return {
        .tokens = Tokens(), .documents = Documents(), .longest = longest, .tables = tables_.data()};
  }
  AttentionTensors Tensors() {
    return {.qkv = qkv_.data(),
            .out = out_.data(),
            .log_sum_exp = log_sum_exp_.data(),
            .sinks = shape_.sinks ? sinks_.data() : nullptr,
            .out_gradient = out_gradient_.data(),
            .qkv_gradient = qkv_gradient_.data(),
            .sink_gradient = shape_.sinks ? sink_gradient_.data() : nullptr};
  }
  AttentionContext Context() { return {scratch_.data(), nullptr}; }

  Outputs Run(PackedAttention& attention) {
    EXPECT_EQ(attention.Forward(Tensors(), Batch(), Context()), absl::OkStatus());
    scratch_.Poison();
    EXPECT_EQ(attention.Backward(Tensors(), Batch(), Context()), absl::OkStatus());
    return {.out = out_.Download(),
            .log_sum_exp = log_sum_exp_.Download(),
            .qkv_gradient = qkv_gradient_.Download(),
            .sink_gradient = sink_gradient_.Download()};
  }

 private:
  const AttentionShape shape_;
  const AttentionInputs& inputs_;
  DeviceNumbers qkv_;
  DeviceNumbers out_gradient_;
  DeviceArray<float> sinks_;
  DeviceNumbers out_;
  DeviceArray<float> log_sum_exp_;
  DeviceNumbers qkv_gradient_;
  DeviceArray<float> sink_gradient_;
  DeviceArray<unsigned char> scratch_;
  DeviceArray<unsigned char> tables_;
};

// Rows [begin, end), columns [left, right) of a row-major matrix.
template <typename T>
std::vector<T> Part(const std::vector<T>& matrix, int64_t width, int64_t begin, int64_t end,
                    int64_t left, int64_t right) {
  std::vector<T> part;
  for (int64_t row = begin; row < end; ++row) {
    part.insert(part.end(), matrix.begin() + row * width + left,
                matrix.begin() + row * width + right);
  }
  return part;
}

double Norm(const std::vector<double>& values) {
  return std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.0));
}

double Distance(const std::vector<float>& actual, const std::vector<double>& expected) {
  std::vector<double> difference(expected.size());
  std::transform(actual.begin(), actual.end(), expected.begin(), difference.begin(),
                 [](float a, double b) { return a - b; });
  return Norm(difference);
}

class Attention : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    auto attention = MakePackedAttention(shape());
    ASSERT_TRUE(attention.ok()) << attention.status();
    attention_ = *std::move(attention);
  }

  const AttentionShape& shape() const { return GetParam().shape; }
  double Tolerance() const { return shape().dtype == kFloat32 ? 1e-5 : 1e-2; }
  // Whether gradients repeat to the bit.
  bool Repeats() const { return shape().mode == kDeterministic || !CudnnServes(shape()); }

  Outputs Run(const AttentionInputs& inputs, int64_t shift_bytes = 0) {
    GpuRun run(shape(), inputs, shift_bytes);
    EXPECT_EQ(attention_->Prepare(run.Documents(), run.Batch().longest), absl::OkStatus());
    return run.Run(*attention_);
  }

  // Columns [left, right) of all rows: no element far off, and no long document off as a whole.
  void ExpectColumnsClose(const std::vector<float>& actual, const std::vector<double>& expected,
                          int64_t width, int64_t left, int64_t right,
                          const std::vector<int32_t>& offsets) const {
    const auto all = Part(expected, width, 0, offsets.back(), left, right);
    const double spread = Norm(all) / std::sqrt(static_cast<double>(all.size()));
    ExpectNear(Part(actual, width, 0, offsets.back(), left, right), all, 2 * Tolerance(),
               20 * Tolerance() * spread);
    for (size_t i = 0; i + 1 < offsets.size(); ++i) {
      if (offsets[i + 1] - offsets[i] < 16) {
        continue;  // gradients of scores that can hardly move are all rounding
      }
      const auto part = Part(expected, width, offsets[i], offsets[i + 1], left, right);
      const auto found = Part(actual, width, offsets[i], offsets[i + 1], left, right);
      EXPECT_LE(Distance(found, part), Tolerance() * Norm(part)) << "document " << i;
    }
  }

  void ExpectAgrees(const AttentionInputs& inputs, const Outputs& outputs) const {
    const AttentionResults expected = ReferenceAttention(shape(), inputs);
    const std::vector<int32_t>& offsets = inputs.document_offsets;
    const int64_t out = shape().OutWidth();
    const int64_t key = shape().KeyWidth();
    const int64_t qkv = shape().QkvWidth();
    ExpectColumnsClose(outputs.out, expected.out, out, 0, out, offsets);
    ExpectNear(outputs.log_sum_exp, expected.log_sum_exp, 1e-5,
               shape().dtype == kFloat32 ? 2e-5 : 2e-4);
    for (const auto& [left, right] :
         {std::pair(int64_t{0}, out), std::pair(out, out + key), std::pair(out + key, qkv)}) {
      SCOPED_TRACE(testing::Message() << "gradient columns " << left << " to " << right);
      ExpectColumnsClose(outputs.qkv_gradient, expected.qkv_gradient, qkv, left, right, offsets);
    }
    if (shape().sinks) {
      std::vector<double> sink_gradient = expected.sink_gradient;
      for (double& value : sink_gradient) {
        value += 1;
      }
      ExpectNear(outputs.sink_gradient, sink_gradient, Tolerance(),
                 Tolerance() * Norm(expected.sink_gradient));
    }
  }

  std::unique_ptr<PackedAttention> attention_;
};

TEST_P(Attention, AgreesWithFloat64InOutputAndGradients) {
  const AttentionInputs inputs = RandomInputs(shape(), GetParam().lengths, 1);
  ExpectAgrees(inputs, Run(inputs));
}

// The same documents in another order and one less: other offsets, and mostly the same bucket.
TEST_P(Attention, ServesAnotherBatch) {
  std::vector<int32_t> lengths = GetParam().lengths;
  const AttentionInputs first = RandomInputs(shape(), lengths, 1);
  Run(first);
  std::reverse(lengths.begin(), lengths.end());
  lengths.pop_back();
  const AttentionInputs second = RandomInputs(shape(), lengths, 7);
  ExpectAgrees(second, Run(second));
}

TEST_P(Attention, RepeatsToTheBitAtOtherAddresses) {
  const AttentionInputs inputs = RandomInputs(shape(), GetParam().lengths, 1);
  const Outputs first = Run(inputs);
  const Outputs second = Run(inputs, 48);
  EXPECT_TRUE(first.out == second.out);
  EXPECT_TRUE(first.log_sum_exp == second.log_sum_exp);
  if (Repeats()) {
    EXPECT_TRUE(first.qkv_gradient == second.qkv_gradient);
    EXPECT_TRUE(first.sink_gradient == second.sink_gradient);
  }
}

TEST_P(Attention, AnotherDocumentChangesNoBit) {
  AttentionInputs inputs = RandomInputs(shape(), GetParam().lengths, 1);
  const Outputs before = Run(inputs);
  // All of document 1 changes.
  const int64_t begin = inputs.document_offsets[1];
  const int64_t end = inputs.document_offsets[2];
  const AttentionInputs other = RandomInputs(shape(), GetParam().lengths, 20);
  const auto replace = [&](std::vector<float>& values, const std::vector<float>& by,
                           int64_t width) {
    std::copy(by.begin() + begin * width, by.begin() + end * width, values.begin() + begin * width);
  };
  replace(inputs.qkv, other.qkv, shape().QkvWidth());
  replace(inputs.out_gradient, other.out_gradient, shape().OutWidth());
  const Outputs after = Run(inputs);
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
  const AttentionInputs inputs = RandomInputs(shape, {100, 30}, 1);
  GpuRun run(shape, inputs);
  EXPECT_EQ((*attention)->Forward(run.Tensors(), run.Batch(), run.Context()).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ((*attention)->Prepare(2, shape.max_tokens + 1).code(),
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
