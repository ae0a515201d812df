#ifndef RUNTIME_OPTIMIZER_RANDOM_FINITE_FOR_TEST_H_
#define RUNTIME_OPTIMIZER_RANDOM_FINITE_FOR_TEST_H_

#include <bit>
#include <cstdint>

namespace megatrain {

// Finite and below 2^60, so that no square overflows what an update keeps: of all magnitudes, with
// subnormals, zeros and values near one among them. `random()` gives 32 random bits.
template <typename Random>
float RandomFinite(Random&& random, bool positive) {
  const uint32_t kind = static_cast<uint32_t>(random()) >> 28;
  uint32_t bits = static_cast<uint32_t>(random());
  if (kind == 0) {
    bits &= 0x807fffff;  // subnormal
  } else if (kind == 1) {
    bits &= 0x80000000;  // zero
  } else if (kind < 6) {
    bits = (bits & 0x807fffff) | (122 + kind) << 23;
  } else if ((bits >> 23 & 0xff) >= 127 + 60) {
    bits &= 0xbfffffff;
  }
  return std::bit_cast<float>(positive ? bits & 0x7fffffff : bits);
}

}  // namespace megatrain

#endif  // RUNTIME_OPTIMIZER_RANDOM_FINITE_FOR_TEST_H_
