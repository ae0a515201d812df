// Packed attention in float64, plain loops: what the GPU's is held against.

#ifndef RUNTIME_KERNELS_ATTENTION_REFERENCE_FOR_TEST_H_
#define RUNTIME_KERNELS_ATTENTION_REFERENCE_FOR_TEST_H_

#include <cstdint>
#include <vector>

#include "runtime/kernels/attention_shape.h"

namespace megatrain {

struct AttentionInputs {
  std::vector<int32_t> document_offsets;
  std::vector<float> qkv;           // [t, QkvWidth]
  std::vector<float> sinks;         // [heads], empty when the shape has none
  std::vector<float> out_gradient;  // [t, OutWidth]
};

struct AttentionResults {
  std::vector<double> out;            // [t, OutWidth]
  std::vector<double> log_sum_exp;    // [t, heads]
  std::vector<double> qkv_gradient;   // [t, QkvWidth]
  std::vector<double> sink_gradient;  // [heads]
};

AttentionResults ReferenceAttention(const AttentionShape& shape, const AttentionInputs& inputs);

}  // namespace megatrain

#endif  // RUNTIME_KERNELS_ATTENTION_REFERENCE_FOR_TEST_H_
