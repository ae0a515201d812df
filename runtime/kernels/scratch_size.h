// Bytes of scratch memory that kernels ask of their caller: pure functions, free of CUDA.

#ifndef RUNTIME_KERNELS_SCRATCH_SIZE_H_
#define RUNTIME_KERNELS_SCRATCH_SIZE_H_

#include <algorithm>
#include <cstdint>

namespace megatrain {

// Sums over rows are formed in two steps: a block adds up one group of rows, then the groups'
// sums are added in order. The numbers of groups are fixed, whatever the GPU: they decide the bits.
// They are made for an H200's 132 multiprocessors, all of which are busy to the end.
inline int64_t BiasRowGroups(int64_t rows, int64_t width) {
  return std::min<int64_t>(rows, 132 * std::clamp<int64_t>(16384 / width, 1, 8));
}

// Narrow rows take small blocks, of which more run at once.
inline int64_t RmsNormRowGroups(int64_t rows, int64_t width) {
  return std::min<int64_t>(rows, width <= 2048 ? 1056 : 528);
}

inline int64_t RmsNormBackwardScratchBytes(int64_t rows, int64_t width) {
  return RmsNormRowGroups(rows, width) * width * static_cast<int64_t>(sizeof(float));
}

inline int64_t BiasBackwardScratchBytes(int64_t rows, int64_t width) {
  return BiasRowGroups(rows, width) * width * static_cast<int64_t>(sizeof(float));
}

// The largest vocabulary at which the bf16 gradient of cross entropy may lie where the logits do.
inline constexpr int64_t kMaxVocabInPlace = int64_t{2} * 163840;

}  // namespace megatrain

#endif  // RUNTIME_KERNELS_SCRATCH_SIZE_H_
