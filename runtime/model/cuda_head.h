// Final norm, output matrix and cross entropy on the GPU, for the tokens with a loss alone and in
// chunks of them, so that [T, V] logits never exist.

#ifndef RUNTIME_MODEL_CUDA_HEAD_H_
#define RUNTIME_MODEL_CUDA_HEAD_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "runtime/model/cuda_buffers.h"
#include "runtime/model/cuda_model.h"
#include "runtime/model/layer_template.h"

namespace megatrain {

// One call's input, all of it device memory.
struct CudaHeadInput {
  const void* norm;               // [d]
  const void* matrix;             // [V, d]
  const void* hidden;             // [t, d]
  const int32_t* loss_positions;  // [n]
  const int32_t* loss_targets;    // [n]
  int64_t loss_count;             // n
  HeadResult* result;             // written
};

// Where the gradients of loss_scale * sum of losses go, device memory.
struct CudaHeadGradients {
  float* norm;    // [d], added to
  float* matrix;  // [V, d], added to
  void* hidden;   // [t, d], all of it written
  int64_t tokens;
  float loss_scale;
  bool overwrites;  // norm and matrix hold nothing yet: they are written
};

// The losses, and their gradients where `gradients` is not null. The losses have the same bits with
// and without. `buffers` are PlaceHead's for `loss_count`. Launches on `stream` and returns.
absl::Status RunCudaHead(const CudaModel& model, const CudaHeadInput& input,
                         const CudaHeadGradients* gradients, const HeadBuffers& buffers,
                         cudaStream_t stream);

}  // namespace megatrain

#endif  // RUNTIME_MODEL_CUDA_HEAD_H_
