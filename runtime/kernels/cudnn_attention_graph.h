// What cuDNN is asked for packed attention: graphs of one operation, built for a bucket of
// micro-batches, and run on a micro-batch's memory.

#ifndef RUNTIME_KERNELS_CUDNN_ATTENTION_GRAPH_H_
#define RUNTIME_KERNELS_CUDNN_ATTENTION_GRAPH_H_

#include <cudnn.h>

#include <compare>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/kernels/attention_shape.h"

namespace megatrain {

// Device memory by the tensor that it is. The last five are AttentionTables' parts; kKeyOffsets
// is for backward alone, and an even bucket takes none of them.
enum AttentionTensorId : int64_t {
  kQuery = 1,
  kKey,
  kValue,
  kOut,
  kLogSumExp,
  kOutGradient,
  kQueryGradient,
  kKeyGradient,
  kValueGradient,
  kLengths,
  kQkvOffsets,
  kOutOffsets,
  kKeyOffsets,
  kLogSumExpOffsets,
};
using AttentionPointers = std::unordered_map<int64_t, void*>;

// The micro-batches that one graph serves. Even: exactly so many documents, each of exactly
// `longest` tokens, so that packed rows are an ordinary dense batch, and cuDNN reads no tables:
// what it runs around the products takes up to three times as long with them. Otherwise ragged:
// up to so many documents of up to `longest` tokens, with the tables.
struct AttentionBucket {
  int64_t documents;
  int64_t longest;
  bool even;
  auto operator<=>(const AttentionBucket&) const = default;
};

// kLogSumExp is [documents, heads, longest] for an even bucket, [t, heads] for a ragged one.
// Gradients of keys and values are in rows of QkvWidth for an even one, as those of queries are,
// and in rows of KeyWidth for a ragged one: there cuDNN spreads a group's gradients over rows as
// many times as wide as those that it writes in the end.
class CudnnAttentionGraph {
 public:
  virtual ~CudnnAttentionGraph() = default;

  // Launches on the handle's stream. `workspace` has CudnnWorkspaceBytes.
  virtual absl::Status Run(cudnnHandle_t handle, AttentionPointers& pointers,
                           void* workspace) const = 0;
};

// RESOURCE_EXHAUSTED when the plan would use more than CudnnWorkspaceBytes, UNIMPLEMENTED when
// cuDNN does not serve this.
absl::StatusOr<std::unique_ptr<const CudnnAttentionGraph>> BuildAttentionForward(
    const AttentionShape& shape, const AttentionBucket& bucket, cudnnHandle_t handle);
absl::StatusOr<std::unique_ptr<const CudnnAttentionGraph>> BuildAttentionBackward(
    const AttentionShape& shape, const AttentionBucket& bucket, cudnnHandle_t handle);

}  // namespace megatrain

#endif  // RUNTIME_KERNELS_CUDNN_ATTENTION_GRAPH_H_
