// SwiGLU: activated = silu(gate) up, in fp32, rounded once.

#ifndef RUNTIME_KERNELS_SWIGLU_H_
#define RUNTIME_KERNELS_SWIGLU_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "runtime/model/layer_template.h"

namespace megatrain {

// gate_up is [tokens, 2 width], gate first; activated is [tokens, width]. Both in `dtype`, 16-byte
// aligned.
absl::Status LaunchSwigluForward(const void* gate_up, void* activated, int64_t tokens,
                                 int64_t width, ComputeDtype dtype, cudaStream_t stream);

// Matrices in `dtype`, 16-byte aligned.
struct SwigluBackward {
  void* gate_up;             // [tokens, 2 width], gate first; their gradients after
  void* activated_gradient;  // [tokens, width], d loss / d activated
  // Whether `activated_gradient` holds the forward's bits of `activated` after, for the product
  // that gives the down projection's weight gradient: not where forward's are kept.
  bool activates_again;
  int64_t tokens;
  int64_t width;
  ComputeDtype dtype;
};
absl::Status LaunchSwigluBackward(const SwigluBackward& arguments, cudaStream_t stream);

}  // namespace megatrain

#endif  // RUNTIME_KERNELS_SWIGLU_H_
