#include "runtime/device/cuda_shared.h"

#include "runtime/kernels/cuda_status.h"

namespace megatrain {

void CudaShared::Update(const absl::Status& error) {
  MutexLock lock(&mutex);
  status.Update(error);
}

bool CudaShared::Check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) {
    return true;
  }
  cudaGetLastError();  // it is told here, not by the next call that asks
  Update(CudaStatus(error, call));
  return false;
}

absl::Status CudaShared::FirstError() {
  MutexLock lock(&mutex);
  return status;
}

void CudaShared::AwaitLaunched(const RecordPoint& point) {
  MutexLock lock(&mutex);
  while (!point.launched) {
    progress.Wait(&mutex);
  }
}

void CudaShared::AwaitReached(const RecordPoint& point) {
  AwaitLaunched(point);
  if (point.event != nullptr) {
    Check(cudaEventSynchronize(point.event.get()), "cudaEventSynchronize");
  }
}

void CudaShared::SetLaunched(RecordPoint& point) {
  MutexLock lock(&mutex);
  point.launched = true;
  progress.NotifyAll();
}

void CudaShared::AwaitAllLaunched() {
  MutexLock lock(&mutex);
  while (open_item_count > 0) {
    progress.Wait(&mutex);
  }
}

void CudaShared::SynchronizeStreams() {
  std::vector<cudaStream_t> streams;
  {
    MutexLock lock(&mutex);
    streams = device_streams;
  }
  for (cudaStream_t stream : streams) {
    Check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }
}

}  // namespace megatrain
