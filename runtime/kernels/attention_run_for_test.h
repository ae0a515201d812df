// Runs packed attention on the GPU for tests, and holds what it gives against float64.

#ifndef RUNTIME_KERNELS_ATTENTION_RUN_FOR_TEST_H_
#define RUNTIME_KERNELS_ATTENTION_RUN_FOR_TEST_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "runtime/kernels/attention_reference_for_test.h"
#include "runtime/kernels/attention_shape.h"
#include "runtime/kernels/device_array_for_test.h"
#include "runtime/kernels/packed_attention.h"
#include "runtime/kernels/packed_attention_interface.h"

namespace megatrain {

// For documents of these lengths, packed one after another.
AttentionInputs RandomAttentionInputs(const AttentionShape& shape,
                                      const std::vector<int32_t>& lengths, uint64_t seed);

AttentionCounts CountsOf(const AttentionInputs& inputs);

struct AttentionOutputs {
  std::vector<float> out;
  std::vector<float> log_sum_exp;
  std::vector<float> qkv_gradient;
  std::vector<float> sink_gradient;
};

// One forward and backward with poisoned outputs and scratch memory, everything moved by
// `shift_bytes`. Sink gradients start at 1, to show that they are added to.
class AttentionRun {
 public:
  AttentionRun(const AttentionShape& shape, const AttentionInputs& inputs, int64_t shift_bytes = 0);

  AttentionBatch Batch();
  AttentionTensors Tensors();
  AttentionContext Context() { return {scratch_.data(), nullptr}; }

  // Its micro-batch was prepared for.
  AttentionOutputs Run(PackedAttention& attention);

 private:
  const AttentionShape shape_;
  const AttentionCounts counts_;
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

// A test of one attention, of the shape that its parameter has.
template <typename Case>
class AttentionTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    auto attention = MakePackedAttention(shape());
    ASSERT_TRUE(attention.ok()) << attention.status();
    attention_ = *std::move(attention);
  }

  const AttentionShape& shape() const { return this->GetParam().shape; }

  AttentionOutputs Run(const AttentionInputs& inputs, int64_t shift_bytes = 0) {
    AttentionRun run(shape(), inputs, shift_bytes);
    EXPECT_EQ(attention_->Prepare(CountsOf(inputs)), absl::OkStatus());
    return run.Run(*attention_);
  }

 private:
  std::unique_ptr<PackedAttention> attention_;
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

// Whether log_sum_exp is [heads, tokens] in each document, rather than [tokens, heads]: no
// contract, but it tells which plan wrote it.
bool IsHeadMajor(const AttentionInputs& inputs, const AttentionResults& expected,
                 const AttentionOutputs& outputs);

// No element far off, and no long document off as a whole.
void ExpectAgrees(const AttentionShape& shape, const AttentionInputs& inputs,
                  const AttentionResults& expected, const AttentionOutputs& outputs);

}  // namespace megatrain

#endif  // RUNTIME_KERNELS_ATTENTION_RUN_FOR_TEST_H_
