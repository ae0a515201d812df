#include "runtime/model/cuda_batch_upload.h"

#include "runtime/base/status_macros.h"
#include "runtime/kernels/cuda_status.h"

namespace megatrain {

absl::StatusOr<std::unique_ptr<BatchUploader>> BatchUploader::Create(int64_t table_bytes) {
  std::unique_ptr<BatchUploader> uploader(new BatchUploader());
  for (Block& block : uploader->blocks_) {
    MT_RETURN_IF_ERROR(CudaStatus(cudaHostAlloc(&block.data, table_bytes, cudaHostAllocDefault),
                                  "cudaHostAlloc of batch tables"));
    MT_RETURN_IF_ERROR(CudaStatus(cudaEventCreateWithFlags(&block.uploaded, cudaEventDisableTiming),
                                  "cudaEventCreate"));
  }
  return uploader;
}

BatchUploader::~BatchUploader() {
  for (const Block& block : blocks_) {
    if (block.uploaded != nullptr) {
      cudaEventSynchronize(block.uploaded);
      cudaEventDestroy(block.uploaded);
    }
    if (block.data != nullptr) {
      cudaFreeHost(block.data);
    }
  }
}

absl::StatusOr<int64_t> BatchUploader::Upload(const AttentionShape& shape, const MicroBatch& batch,
                                              void* device_tables, cudaStream_t stream) {
  const Block& block = blocks_[next_];
  next_ = (next_ + 1) % kTableUploads;
  MT_RETURN_IF_ERROR(CudaStatus(cudaEventSynchronize(block.uploaded), "cudaEventSynchronize"));
  const BatchTables host = PlaceBatchTables(shape, batch, block.data);
  const BatchTables device = PlaceBatchTables(shape, batch, device_tables);
  const int64_t distinct_tokens = FillBatchTables(shape, batch, host);
  MT_RETURN_IF_ERROR(CudaStatus(
      cudaMemcpyAsync(device.tokens, host.tokens, host.used_bytes, cudaMemcpyHostToDevice, stream),
      "cudaMemcpyAsync of batch tables"));
  MT_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(block.uploaded, stream), "cudaEventRecord"));
  return distinct_tokens;
}

}  // namespace megatrain
