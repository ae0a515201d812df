// Packed attention by our own kernels: tiles in shared memory, all arithmetic in fp32, every
// sum in a fixed order. The path of float32 training, of sinks, and of deterministic training
// where cuDNN would need too much memory.

#ifndef RUNTIME_KERNELS_EXACT_ATTENTION_H_
#define RUNTIME_KERNELS_EXACT_ATTENTION_H_

#include <cstdint>

#include "absl/status/status.h"
#include "runtime/kernels/attention_shape.h"
#include "runtime/kernels/packed_attention_interface.h"

namespace megatrain {

class ExactAttention final : public PackedAttention {
 public:
  // The shape is one that MakePackedAttention accepts.
  explicit ExactAttention(const AttentionShape& shape) : shape_(shape) {}

  // Ready for any batch. Its log_sum_exp is [t, heads].
  absl::Status Prepare(const AttentionCounts& /*counts*/) override { return absl::OkStatus(); }
  absl::Status Forward(const AttentionTensors& tensors, const AttentionBatch& batch,
                       const AttentionContext& context) override;
  absl::Status Backward(const AttentionTensors& tensors, const AttentionBatch& batch,
                        const AttentionContext& context) override;

 private:
  const AttentionShape shape_;
};

}  // namespace megatrain

#endif  // RUNTIME_KERNELS_EXACT_ATTENTION_H_
