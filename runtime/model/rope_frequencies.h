// Rotary position embedding on the host, without LibTorch.

#ifndef RUNTIME_MODEL_ROPE_FREQUENCIES_H_
#define RUNTIME_MODEL_ROPE_FREQUENCIES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/config/model_config.h"

namespace megatrain {

// Radians per position of each of the head_dim / 2 channel pairs: the fp32 operations of
// runtime/ops/rope.h in the same order, powers rounded correctly (LibTorch's are up to one unit in
// the last place off). `rope.kind` is default, linear or llama3.
std::vector<float> RopeFrequencies(const RopeConfig& rope, int64_t head_dim);

// (cos, sin) of the angle of every position below `positions` and every pair, position-major: the
// angle is rounded to fp32, as transformers rounds it. 2 * positions * frequencies.size() values.
std::vector<float> RopeTableValues(int64_t positions, std::span<const float> frequencies);

}  // namespace megatrain

#endif  // RUNTIME_MODEL_ROPE_FREQUENCIES_H_
