#ifndef RUNTIME_DEVICE_CUDA_EVENT_POOL_H_
#define RUNTIME_DEVICE_CUDA_EVENT_POOL_H_

#include <cuda_runtime_api.h>

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/mutex.h"

namespace megatrain {

// A CUDA event that goes back to its pool with its last holder. What was told to wait for its
// record before that still does.
using CudaEventHandle = std::shared_ptr<CUevent_st>;

// CUDA events of one kind on one GPU, made when there is none to use again: a program that repeats
// itself makes no more after its first round. Thread-safe. Outlives its handles.
class CudaEventPool {
 public:
  // `flags` as for cudaEventCreateWithFlags.
  CudaEventPool(int ordinal, unsigned int flags) : ordinal_(ordinal), flags_(flags) {}
  ~CudaEventPool();
  CudaEventPool(const CudaEventPool&) = delete;
  CudaEventPool& operator=(const CudaEventPool&) = delete;

  absl::StatusOr<CudaEventHandle> Take() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  absl::StatusOr<cudaEvent_t> TakeIdleOrMake() ABSL_LOCKS_EXCLUDED(mutex_);
  void PutBack(cudaEvent_t event) ABSL_LOCKS_EXCLUDED(mutex_);

  const int ordinal_;
  const unsigned int flags_;
  Mutex mutex_;
  std::vector<cudaEvent_t> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace megatrain

#endif  // RUNTIME_DEVICE_CUDA_EVENT_POOL_H_
