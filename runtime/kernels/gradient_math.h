// The pipeline's own arithmetic on gradients and weights in device memory. Results depend on the
// values alone, never on addresses. All arrays are aligned to 16 bytes; every call is enqueued on
// `stream`.

#ifndef RUNTIME_KERNELS_GRADIENT_MATH_H_
#define RUNTIME_KERNELS_GRADIENT_MATH_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "runtime/device/value_range.h"

namespace megatrain {

// target[i] += source[i]; the arrays do not overlap.
absl::Status LaunchAddTo(float* target, const float* source, int64_t count, cudaStream_t stream);

// sums[i] = the sum in fp64 of the squares of ranges[i] of `values`, by a tree that its count alone
// decides. `scratch` is of kSumsOfSquaresScratchBytes.
inline constexpr int kSumsAtOnce = 16;
inline constexpr int kMaxSumPartials = 1024;  // of a range
inline constexpr int64_t kSumsOfSquaresScratchBytes =
    int64_t{kSumsAtOnce} * kMaxSumPartials * sizeof(double);
absl::Status LaunchSumsOfSquares(const float* values, std::span<const ValueRange> ranges,
                                 double* sums, void* scratch, cudaStream_t stream);

// fp32 to the nearest bf16, ties to even, packed to the front of the same memory. NaN stays NaN.
absl::Status LaunchRoundToBfloat16InPlace(float* values, int64_t count, cudaStream_t stream);

// The same into another array.
absl::Status LaunchRoundToBfloat16(const float* values, uint16_t* rounded, int64_t count,
                                   cudaStream_t stream);

// *first_row = the first row of [rows, width] with an infinity or NaN, or -1. element_bytes is 2
// for bf16, 4 for fp32.
struct ValueRows {
  const void* values;
  int element_bytes;
  int64_t rows;  // below 2^31
  int64_t width;
};
absl::Status LaunchFindNonFiniteRow(const ValueRows& rows, int32_t* first_row, cudaStream_t stream);

}  // namespace megatrain

#endif  // RUNTIME_KERNELS_GRADIENT_MATH_H_
