// Rounding to bf16 with the bits of the CPU's code.

#ifndef RUNTIME_KERNELS_BFLOAT16_BITS_CUH_
#define RUNTIME_KERNELS_BFLOAT16_BITS_CUH_

#include <cstdint>

namespace megatrain {

// The nearest bf16, ties to even. NaN stays NaN and keeps its upper bits, which CUDA's own
// conversion does not.
__device__ inline uint16_t RoundToBfloat16Bits(float value) {
  const uint32_t bits = __float_as_uint(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return static_cast<uint16_t>((bits >> 16) | 0x40u);
  }
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace megatrain

#endif  // RUNTIME_KERNELS_BFLOAT16_BITS_CUH_
