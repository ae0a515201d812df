// Packed attention through cuDNN's graph API.

#ifndef RUNTIME_KERNELS_CUDNN_ATTENTION_H_
#define RUNTIME_KERNELS_CUDNN_ATTENTION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "runtime/kernels/attention_shape.h"
#include "runtime/kernels/packed_attention_interface.h"

namespace megatrain {

// For a shape that CudnnServes. Plans are kept by bucket: documents rounded up to a power of
// two, the longest document to a multiple of 512. Micro-batches whose documents all have one
// length, a multiple of 512, have buckets of their own, with faster plans where cuDNN has them.
// A deterministic backward whose plan needs more than CudnnWorkspaceBytes runs on
// ExactAttention's kernels.
absl::StatusOr<std::unique_ptr<PackedAttention>> MakeCudnnAttention(const AttentionShape& shape);

}  // namespace megatrain

#endif  // RUNTIME_KERNELS_CUDNN_ATTENTION_H_
