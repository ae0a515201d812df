// Carries micro-batches' tables to the device through pinned memory.

#ifndef RUNTIME_MODEL_CUDA_BATCH_UPLOAD_H_
#define RUNTIME_MODEL_CUDA_BATCH_UPLOAD_H_

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/kernels/attention_shape.h"
#include "runtime/model/cuda_batch_tables.h"
#include "runtime/model/layer_template.h"

namespace megatrain {

// For one thread at a time.
class BatchUploader {
 public:
  // For tables of at most `table_bytes`, on the current device.
  static absl::StatusOr<std::unique_ptr<BatchUploader>> Create(int64_t table_bytes);
  ~BatchUploader();
  BatchUploader(const BatchUploader&) = delete;
  BatchUploader& operator=(const BatchUploader&) = delete;

  // Builds the batch's tables and enqueues their copy to `device_tables`; returns the number of the
  // batch's distinct tokens. Waits only where so many uploads before this one are still to run that
  // all pinned memory is taken.
  absl::StatusOr<int64_t> Upload(const AttentionShape& shape, const MicroBatch& batch,
                                 void* device_tables, cudaStream_t stream);

 private:
  // Pinned memory of one upload, free again when `uploaded` has happened.
  struct Block {
    void* data = nullptr;
    cudaEvent_t uploaded = nullptr;
  };

  BatchUploader() = default;

  std::array<Block, kTableUploads> blocks_;
  int next_ = 0;
};

}  // namespace megatrain

#endif  // RUNTIME_MODEL_CUDA_BATCH_UPLOAD_H_
