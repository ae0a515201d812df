#ifndef RUNTIME_DATA_DATA_MEMORY_H_
#define RUNTIME_DATA_DATA_MEMORY_H_

#include <cstdint>

namespace megatrain {

// Most host memory that prepared data and a BatchReader over it take; tokens stay on the disk.
inline int64_t DataMemoryBytes(int64_t row_count, int64_t max_step_tokens) {
  // Offsets, order, packed rows and the part's rows: four int64 a row; a fifth while the rows that
  // are set aside are found.
  constexpr int64_t kBytesPerRow = 5 * 8;
  // Four int32 a token; a document, of two tokens or more, has an int32 and an int64.
  constexpr int64_t kBytesPerToken = 4 * 4 + 6;
  // Vectors grow by doubling; a batch is made while two steps are on their way.
  constexpr int64_t kBatchCopies = 2 * 3;
  constexpr int64_t kReadBufferBytes = 1 << 20;
  return kBytesPerRow * (row_count + 1) + kBatchCopies * kBytesPerToken * max_step_tokens +
         kReadBufferBytes;
}

}  // namespace megatrain

#endif  // RUNTIME_DATA_DATA_MEMORY_H_
