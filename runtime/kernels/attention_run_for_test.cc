#include "runtime/kernels/attention_run_for_test.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace megatrain {
namespace {

constexpr auto kFloat32 = ComputeDtype::kFloat32;

double Tolerance(const AttentionShape& shape) { return shape.dtype == kFloat32 ? 1e-5 : 1e-2; }

double Norm(const std::vector<double>& values) {
  return std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.0));
}

double Distance(const std::vector<float>& actual, const std::vector<double>& expected) {
  std::vector<double> difference(expected.size());
  std::transform(actual.begin(), actual.end(), expected.begin(), difference.begin(),
                 [](float a, double b) { return a - b; });
  return Norm(difference);
}

std::vector<double> HeadMajor(const AttentionInputs& inputs, const std::vector<double>& rows) {
  const std::vector<int32_t>& offsets = inputs.document_offsets;
  const int64_t heads = std::ssize(rows) / offsets.back();
  std::vector<double> result;
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    for (int64_t head = 0; head < heads; ++head) {
      for (int64_t row = offsets[i]; row < offsets[i + 1]; ++row) {
        result.push_back(rows[row * heads + head]);
      }
    }
  }
  return result;
}

// Columns [left, right) of all rows.
void ExpectColumnsClose(const std::vector<float>& actual, const std::vector<double>& expected,
                        int64_t width, int64_t left, int64_t right,
                        const std::vector<int32_t>& offsets, double tolerance) {
  const auto all = Part(expected, width, 0, offsets.back(), left, right);
  const double spread = Norm(all) / std::sqrt(static_cast<double>(all.size()));
  ExpectNear(Part(actual, width, 0, offsets.back(), left, right), all, 2 * tolerance,
             20 * tolerance * spread);
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    if (offsets[i + 1] - offsets[i] < 16) {
      continue;  // gradients of scores that can hardly move are all rounding
    }
    const auto part = Part(expected, width, offsets[i], offsets[i + 1], left, right);
    const auto found = Part(actual, width, offsets[i], offsets[i + 1], left, right);
    EXPECT_LE(Distance(found, part), tolerance * Norm(part)) << "document " << i;
  }
}

}  // namespace

AttentionInputs RandomAttentionInputs(const AttentionShape& shape,
                                      const std::vector<int32_t>& lengths, uint64_t seed) {
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

AttentionCounts CountsOf(const AttentionInputs& inputs) {
  const std::vector<int32_t>& offsets = inputs.document_offsets;
  int32_t longest = 0;
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    longest = std::max(longest, offsets[i + 1] - offsets[i]);
  }
  return {.tokens = offsets.back(), .documents = std::ssize(offsets) - 1, .longest = longest};
}

AttentionRun::AttentionRun(const AttentionShape& shape, const AttentionInputs& inputs,
                           int64_t shift_bytes)
    : shape_(shape),
      counts_(CountsOf(inputs)),
      qkv_(shape.dtype, inputs.qkv, shift_bytes),
      out_gradient_(shape.dtype, inputs.out_gradient, shift_bytes),
      sinks_(shape.sinks ? inputs.sinks : std::vector<float>(shape.heads, 0), shift_bytes),
      out_(shape.dtype, counts_.tokens * shape.OutWidth(), shift_bytes),
      log_sum_exp_(counts_.tokens * shape.heads, shift_bytes),
      qkv_gradient_(shape.dtype, counts_.tokens * shape.QkvWidth(), shift_bytes),
      sink_gradient_(std::vector<float>(shape.heads, 1), shift_bytes),
      scratch_(AttentionScratchBytes(shape)),
      tables_(AttentionTableBytes(shape, counts_.tokens, counts_.documents)) {
  std::vector<unsigned char> tables(tables_.count());
  FillAttentionTables(shape, inputs.document_offsets, tables.data());
  tables_.Upload(tables);
}

AttentionBatch AttentionRun::Batch() { return {.counts = counts_, .tables = tables_.data()}; }

AttentionTensors AttentionRun::Tensors() {
  return {.qkv = qkv_.data(),
          .out = out_.data(),
          .log_sum_exp = log_sum_exp_.data(),
          .sinks = shape_.sinks ? sinks_.data() : nullptr,
          .out_gradient = out_gradient_.data(),
          .qkv_gradient = qkv_gradient_.data(),
          .sink_gradient = shape_.sinks ? sink_gradient_.data() : nullptr};
}

AttentionOutputs AttentionRun::Run(PackedAttention& attention) {
  EXPECT_EQ(attention.Forward(Tensors(), Batch(), Context()), absl::OkStatus());
  scratch_.Poison();
  EXPECT_EQ(attention.Backward(Tensors(), Batch(), Context()), absl::OkStatus());
  return {.out = out_.Download(),
          .log_sum_exp = log_sum_exp_.Download(),
          .qkv_gradient = qkv_gradient_.Download(),
          .sink_gradient = sink_gradient_.Download()};
}

bool IsHeadMajor(const AttentionInputs& inputs, const AttentionResults& expected,
                 const AttentionOutputs& outputs) {
  return Distance(outputs.log_sum_exp, HeadMajor(inputs, expected.log_sum_exp)) <
         Distance(outputs.log_sum_exp, expected.log_sum_exp);
}

void ExpectAgrees(const AttentionShape& shape, const AttentionInputs& inputs,
                  const AttentionResults& expected, const AttentionOutputs& outputs) {
  const std::vector<int32_t>& offsets = inputs.document_offsets;
  const double tolerance = Tolerance(shape);
  const int64_t out = shape.OutWidth();
  const int64_t key = shape.KeyWidth();
  const int64_t qkv = shape.QkvWidth();
  ExpectColumnsClose(outputs.out, expected.out, out, 0, out, offsets, tolerance);
  ExpectNear(outputs.log_sum_exp,
             IsHeadMajor(inputs, expected, outputs) ? HeadMajor(inputs, expected.log_sum_exp)
                                                    : expected.log_sum_exp,
             1e-5, shape.dtype == kFloat32 ? 2e-5 : 2e-4);
  for (const auto& [left, right] :
       {std::pair(int64_t{0}, out), std::pair(out, out + key), std::pair(out + key, qkv)}) {
    SCOPED_TRACE(testing::Message() << "gradient columns " << left << " to " << right);
    ExpectColumnsClose(outputs.qkv_gradient, expected.qkv_gradient, qkv, left, right, offsets,
                       tolerance);
  }
  if (shape.sinks) {
    std::vector<double> sink_gradient = expected.sink_gradient;
    for (double& value : sink_gradient) {
      value += 1;
    }
    ExpectNear(outputs.sink_gradient, sink_gradient, tolerance,
               tolerance * Norm(expected.sink_gradient));
  }
}

}  // namespace megatrain
