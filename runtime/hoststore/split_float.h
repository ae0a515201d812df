// The exact split of a fp32 master weight into the bf16 that the device reads and the rest.

#ifndef RUNTIME_HOSTSTORE_SPLIT_FLOAT_H_
#define RUNTIME_HOSTSTORE_SPLIT_FLOAT_H_

#include <bit>
#include <cstdint>
#include <span>

namespace megatrain {

// `hi` is the nearest bf16 (ties away from zero), `lo` the signed distance in units of fp32's last
// place. Every one of the 2^32 bit patterns comes back from JoinFloat unchanged, infinities and
// NaNs included. As a bf16 alone, `hi` of a finite value from 0x7f7f8000 on is infinite, and `hi`
// of a NaN may be an infinity or a zero: who exports `hi` checks for finite weights first.
struct SplitFloat {
  uint16_t hi;
  int16_t lo;
};

inline SplitFloat SplitBits(uint32_t bits) {
  return {.hi = static_cast<uint16_t>((bits + 0x8000u) >> 16), .lo = static_cast<int16_t>(bits)};
}

inline uint32_t JoinBits(SplitFloat split) {
  return (uint32_t{split.hi} << 16) + static_cast<uint32_t>(int32_t{split.lo});
}

inline SplitFloat Split(float value) { return SplitBits(std::bit_cast<uint32_t>(value)); }

inline float JoinFloat(uint16_t hi, int16_t lo) {
  return std::bit_cast<float>(JoinBits({.hi = hi, .lo = lo}));
}

// Element by element; the spans are of one length and do not overlap.
inline void SplitFloats(std::span<const float> values, uint16_t* hi, int16_t* lo) {
  for (size_t i = 0; i < values.size(); ++i) {
    const SplitFloat split = Split(values[i]);
    hi[i] = split.hi;
    lo[i] = split.lo;
  }
}

inline void JoinFloats(const uint16_t* hi, const int16_t* lo, std::span<float> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = JoinFloat(hi[i], lo[i]);
  }
}

}  // namespace megatrain

#endif  // RUNTIME_HOSTSTORE_SPLIT_FLOAT_H_
