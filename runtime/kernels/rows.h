// Rows of a matrix picked, placed and added by index: the token table and the loss positions.

#ifndef RUNTIME_KERNELS_ROWS_H_
#define RUNTIME_KERNELS_ROWS_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "runtime/model/layer_template.h"

namespace megatrain {

// `count` rows of `width` elements and where each lies in a larger matrix of that width. Device
// memory, 16-byte aligned; indices are trusted.
struct RowIndices {
  const int32_t* rows;  // [count]
  int64_t count;
  int64_t width;
  ComputeDtype dtype;
};

// out[i] = table[rows[i]].
absl::Status LaunchGatherRows(const void* table, const RowIndices& indices, void* out,
                              cudaStream_t stream);

// out[rows[i]] = values[i], for distinct rows; the other rows of `out` are left alone.
absl::Status LaunchScatterRows(const void* values, const RowIndices& indices, void* out,
                               cudaStream_t stream);

// Positions grouped by the row they are added to. Segment s is the positions
// order[starts[s]] .. order[starts[s + 1] - 1], ascending, all for row rows[s]; a row has one
// segment.
struct SortedRows {
  const int32_t* order;
  const int32_t* starts;  // [segment_count + 1]
  const int32_t* rows;    // [segment_count]
  int64_t segment_count;
};

// table[rows[s]] += values[position] for each position of each segment in turn: the bits of one
// addition after another in fp32. `values` is [positions, width] in `dtype`, `table` has that
// width.
absl::Status LaunchAddRows(const void* values, const SortedRows& sorted, int64_t width,
                           ComputeDtype dtype, float* table, cudaStream_t stream);

}  // namespace megatrain

#endif  // RUNTIME_KERNELS_ROWS_H_
