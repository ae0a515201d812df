// The second step of sums over rows: adds up the partial sums of row groups.

#ifndef RUNTIME_KERNELS_COLUMN_SUMS_H_
#define RUNTIME_KERNELS_COLUMN_SUMS_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"

namespace megatrain {

// sums[c] += the sum of partial[g][c] over the groups, in an order that depends on `groups` alone.
// `partial` is [groups, width].
absl::Status LaunchAddColumnSums(const float* partial, int64_t groups, int64_t width, float* sums,
                                 cudaStream_t stream);

}  // namespace megatrain

#endif  // RUNTIME_KERNELS_COLUMN_SUMS_H_
