// The tables of one micro-batch that the CUDA templates read on the device. Host code without CUDA.

#ifndef RUNTIME_MODEL_CUDA_BATCH_TABLES_H_
#define RUNTIME_MODEL_CUDA_BATCH_TABLES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "runtime/kernels/attention_shape.h"
#include "runtime/model/cuda_buffers.h"
#include "runtime/model/layer_template.h"

namespace megatrain {

// Where a micro-batch's tables lie from some base on, on the host or on the device.
struct BatchTables {
  int32_t* tokens;          // [t]
  int32_t* positions;       // [t]
  int32_t* loss_positions;  // [n]
  int32_t* loss_targets;    // [n]

  // The token positions sorted by token, then by position: segment s is the positions
  // order[segment_starts[s]] .. order[segment_starts[s + 1] - 1], of the token segment_tokens[s].
  int32_t* order;           // [t]
  int32_t* segment_starts;  // [distinct tokens + 1]
  int32_t* segment_tokens;  // [distinct tokens]

  void* attention;     // as FillAttentionTables wrote it
  int64_t used_bytes;  // from `tokens`, the first table, to the end of the last
  int64_t size_bytes;  // that the base must have
};

// Depends on the batch's numbers of tokens, losses and documents alone.
BatchTables PlaceBatchTables(const AttentionShape& shape, const MicroBatch& batch, void* base);

// Of any micro-batch within the limits.
int64_t MaxBatchTableBytes(const AttentionShape& shape, const MicroBatchLimits& limits);

// Uploads of tables that are on their way at a time, each through its own pinned memory.
inline constexpr int kTableUploads = 16;

// Fills host memory placed by PlaceBatchTables; returns the number of distinct tokens. The batch
// has passed CheckMicroBatch.
int64_t FillBatchTables(const AttentionShape& shape, const MicroBatch& batch,
                        const BatchTables& tables);

int64_t LongestDocument(const MicroBatch& batch);

// INVALID_ARGUMENT that says what of the batch is out of range, order or the limits.
absl::Status CheckMicroBatch(const MicroBatch& batch, int64_t vocab_size,
                             const MicroBatchLimits& limits);

}  // namespace megatrain

#endif  // RUNTIME_MODEL_CUDA_BATCH_TABLES_H_
