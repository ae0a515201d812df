#ifndef RUNTIME_BASE_ROUND_UP_H_
#define RUNTIME_BASE_ROUND_UP_H_

#include <cstdint>

namespace megatrain {

// The least multiple of `step`, which is positive, that is not below `value`, which is not
// negative.
constexpr int64_t RoundUp(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

}  // namespace megatrain

#endif  // RUNTIME_BASE_ROUND_UP_H_
