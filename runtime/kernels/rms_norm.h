// RMSNorm: normed = x r w with r = 1 / sqrt(mean(x^2) + epsilon) of a row, in fp32, rounded once.

#ifndef RUNTIME_KERNELS_RMS_NORM_H_
#define RUNTIME_KERNELS_RMS_NORM_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "runtime/kernels/scratch_size.h"
#include "runtime/model/layer_template.h"

namespace megatrain {

// The widest row: a block keeps it in registers.
inline constexpr int64_t kMaxRmsNormWidth = 32768;

// Matrices are [rows, width] in `dtype`, 16-byte aligned.
struct RmsNormForward {
  const void* x;
  const void* weight;       // [width]
  void* normed;             // may be x
  float* inverse_rms;       // [rows], r; may be null
  int32_t* mark = nullptr;  // becomes the first row of x with an infinity or NaN, unless it is
                            // smaller already, -1 taken for the largest number; may be null
  int64_t rows;
  int64_t width;
  float epsilon;
  ComputeDtype dtype;
};

// INVALID_ARGUMENT for a width above kMaxRmsNormWidth.
absl::Status LaunchRmsNormForward(const RmsNormForward& arguments, cudaStream_t stream);

// Matrices are [rows, width] in `dtype`, 16-byte aligned; none may be another, but that `normed`
// may be null.
struct RmsNormBackward {
  const void* x;
  const void* weight;
  const float* inverse_rms;  // [rows]
  const void* normed_gradient;
  void* x_gradient;        // added to: holds the residual branch's gradient
  void* normed;            // the forward's bits again, for the product that follows the norm
  float* weight_gradient;  // [width], added to
  void* scratch;           // RmsNormBackwardScratchBytes
  int64_t rows;
  int64_t width;
  ComputeDtype dtype;
};

// INVALID_ARGUMENT for a width above kMaxRmsNormWidth.
absl::Status LaunchRmsNormBackward(const RmsNormBackward& arguments, cudaStream_t stream);

}  // namespace megatrain

#endif  // RUNTIME_KERNELS_RMS_NORM_H_
