#include "runtime/device/cuda_event_pool.h"

#include "runtime/base/status_macros.h"
#include "runtime/kernels/cuda_status.h"

namespace megatrain {

CudaEventPool::~CudaEventPool() {
  MutexLock lock(&mutex_);
  for (cudaEvent_t event : idle_) {
    cudaEventDestroy(event);
  }
}

absl::StatusOr<CudaEventHandle> CudaEventPool::Take() {
  MT_ASSIGN_OR_RETURN(const cudaEvent_t event, TakeIdleOrMake());
  return CudaEventHandle(event, [this](cudaEvent_t last) { PutBack(last); });
}

absl::StatusOr<cudaEvent_t> CudaEventPool::TakeIdleOrMake() {
  {
    MutexLock lock(&mutex_);
    if (!idle_.empty()) {
      const cudaEvent_t event = idle_.back();
      idle_.pop_back();
      return event;
    }
  }
  cudaEvent_t event = nullptr;
  MT_RETURN_IF_ERROR(CudaStatus(cudaSetDevice(ordinal_), "cudaSetDevice"));
  MT_RETURN_IF_ERROR(CudaStatus(cudaEventCreateWithFlags(&event, flags_), "cudaEventCreate"));
  return event;
}

void CudaEventPool::PutBack(cudaEvent_t event) {
  MutexLock lock(&mutex_);
  idle_.push_back(event);
}

}  // namespace megatrain
