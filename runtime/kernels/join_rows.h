// Two dense matrices side by side into columns of a wider one.

#ifndef RUNTIME_KERNELS_JOIN_ROWS_H_
#define RUNTIME_KERNELS_JOIN_ROWS_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"

namespace megatrain {

// Row i of `target` becomes row i of `left`, then row i of `right`. What of a target row lies
// behind them is left alone. All memory is 16-byte aligned, all numbers of bytes are multiples
// of 16.
struct RowJoin {
  const void* left;      // [rows] of width_bytes
  const void* right;     // [rows] of width_bytes
  void* target;          // the first of the columns
  int64_t stride_bytes;  // from one target row to the next
  int64_t width_bytes;
  int64_t rows;
};
absl::Status LaunchJoinRows(const RowJoin& join, cudaStream_t stream);

}  // namespace megatrain

#endif  // RUNTIME_KERNELS_JOIN_ROWS_H_
