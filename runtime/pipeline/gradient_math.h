// The pipeline's own arithmetic on gradients and weights in the memory of a CPU device. Results
// depend on the values alone, never on addresses or threads.

#ifndef RUNTIME_PIPELINE_GRADIENT_MATH_H_
#define RUNTIME_PIPELINE_GRADIENT_MATH_H_

#include <cstdint>
#include <span>

#include "runtime/model/layer_template.h"

namespace megatrain {

// In fp64, summed by a fixed tree: eight lanes over blocks of 4,096, then the blocks in order.
double SumOfSquares(std::span<const float> values);

// target[i] += source[i]; of one length, not overlapping.
void AddTo(std::span<float> target, std::span<const float> source);

// fp32 to the nearest bf16, ties to even. NaN stays NaN.
uint16_t RoundToBfloat16(float value);

// The same of all values, packed to the front of their memory.
void RoundToBfloat16InPlace(std::span<float> values);

// The index of the first infinity or NaN among `count` elements, or -1.
int64_t FirstNonFinite(const void* values, ComputeDtype dtype, int64_t count);

}  // namespace megatrain

#endif  // RUNTIME_PIPELINE_GRADIENT_MATH_H_
