// The matrix products of the CUDA templates, so that they can be measured before they run. Pure.

#ifndef RUNTIME_MODEL_MATMUL_SAMPLES_H_
#define RUNTIME_MODEL_MATMUL_SAMPLES_H_

#include <vector>

#include "absl/status/statusor.h"
#include "runtime/kernels/matmul_choices.h"
#include "runtime/model/cuda_buffers.h"

namespace megatrain {

// Forward, input gradient and weight gradient of each matrix of a layer for a full micro-batch, and
// of the head for the chunks of one whose every token but each document's last has a loss, as far
// as FindMatmulChoice tells them apart. Other micro-batches have other products. `shape` is one
// that CheckCudaTrainable lets pass.
absl::StatusOr<std::vector<MatmulSample>> MatmulSamplesOf(const CudaShape& shape, bool qkv_bias,
                                                          const MicroBatchLimits& limits);

}  // namespace megatrain

#endif  // RUNTIME_MODEL_MATMUL_SAMPLES_H_
