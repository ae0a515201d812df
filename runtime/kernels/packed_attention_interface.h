// Causal attention within the documents of packed rows, on the GPU.

#ifndef RUNTIME_KERNELS_PACKED_ATTENTION_INTERFACE_H_
#define RUNTIME_KERNELS_PACKED_ATTENTION_INTERFACE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "runtime/kernels/attention_shape.h"

struct CUstream_st;  // cudaStream_t is a pointer to it

namespace megatrain {

// Device memory in the shape's dtype, 16-byte aligned. `out_gradient` and what follows it is for
// Backward alone.
struct AttentionTensors {
  const void* qkv;               // [t, QkvWidth]
  void* out;                     // [t, OutWidth]: written by Forward, read by Backward
  float* log_sum_exp;            // t * heads, sinks included, in an order of the writer's own:
                                 // written by Forward, read by Backward of the same batch
  const float* sinks = nullptr;  // [heads], when the shape has them
  const void* out_gradient = nullptr;
  void* qkv_gradient = nullptr;    // all of it is written
  float* sink_gradient = nullptr;  // [heads], added to
};

// How a micro-batch's tokens fall into documents. Plans are made for these and found by them.
struct AttentionCounts {
  int64_t tokens;
  int64_t documents;
  int64_t longest;  // tokens of the longest document
};

// One micro-batch. `tables` is the device copy of what FillAttentionTables wrote.
struct AttentionBatch {
  AttentionCounts counts;
  const void* tables;
};

// AttentionScratchBytes of device memory, 256-byte aligned, and the stream to run on.
struct AttentionContext {
  void* scratch;
  CUstream_st* stream;
};

// One a model. Forward and Backward launch and return; calls are made by one thread at a time.
// They may run beside Prepare.
class PackedAttention {
 public:
  virtual ~PackedAttention() = default;

  // Makes ready for micro-batches of these counts. Up to a second or two of host work the first
  // time, nothing after: belongs outside of a step. Thread-safe.
  virtual absl::Status Prepare(const AttentionCounts& counts) = 0;

  // FAILED_PRECONDITION when the batch was not prepared for.
  virtual absl::Status Forward(const AttentionTensors& tensors, const AttentionBatch& batch,
                               const AttentionContext& context) = 0;
  virtual absl::Status Backward(const AttentionTensors& tensors, const AttentionBatch& batch,
                                const AttentionContext& context) = 0;
};

}  // namespace megatrain

#endif  // RUNTIME_KERNELS_PACKED_ATTENTION_INTERFACE_H_
