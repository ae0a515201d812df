// Causal attention within the documents of packed rows, on the GPU: the one to take for a shape.

#ifndef RUNTIME_KERNELS_PACKED_ATTENTION_H_
#define RUNTIME_KERNELS_PACKED_ATTENTION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "runtime/kernels/attention_shape.h"
#include "runtime/kernels/packed_attention_interface.h"

namespace megatrain {

// cuDNN where it serves the shape, else ExactAttention; for the current device. INVALID_ARGUMENT
// or UNIMPLEMENTED when the shape cannot be.
absl::StatusOr<std::unique_ptr<PackedAttention>> MakePackedAttention(const AttentionShape& shape);

}  // namespace megatrain

#endif  // RUNTIME_KERNELS_PACKED_ATTENTION_H_
