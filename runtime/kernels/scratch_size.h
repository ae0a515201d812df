// Bytes of scratch memory that kernels ask of their caller: pure functions, free of CUDA.

#ifndef RUNTIME_KERNELS_SCRATCH_SIZE_H_
#define RUNTIME_KERNELS_SCRATCH_SIZE_H_

#include <algorithm>
#include <cstdint>

namespace megatrain {

// Sums over rows are formed in two steps: a block adds up one group of rows, then the groups'
// sums are added in order. Both numbers are fixed, whatever the GPU: they decide the bits.
inline constexpr int64_t kRmsNormRowGroups = 528;
inline constexpr int64_t kBiasRowGroups = 256;

inline int64_t RmsNormBackwardScratchBytes(int64_t rows, int64_t width) {
  return std::min(rows, kRmsNormRowGroups) * width * static_cast<int64_t>(sizeof(float));
}

inline int64_t BiasBackwardScratchBytes(int64_t rows, int64_t width) {
  return std::min(rows, kBiasRowGroups) * width * static_cast<int64_t>(sizeof(float));
}

// The largest vocabulary at which the bf16 gradient of cross entropy may lie where the logits do.
inline constexpr int64_t kMaxVocabInPlace = int64_t{2} * 163840;

}  // namespace megatrain

#endif  // RUNTIME_KERNELS_SCRATCH_SIZE_H_
