#ifndef RUNTIME_DEVICE_CUDA_PAGE_PINNER_H_
#define RUNTIME_DEVICE_CUDA_PAGE_PINNER_H_

#include "runtime/hoststore/page_pinner.h"

namespace megatrain {

// Pins for CUDA's GPUs. Pages that have no memory yet get it, by one thread. Thread-safe.
class CudaPagePinner final : public PagePinner {
 public:
  // RESOURCE_EXHAUSTED when the system refuses; the message names its limit on locked memory.
  absl::Status Pin(void* data, int64_t size_bytes) override;
  void Unpin(void* data) override;
};

}  // namespace megatrain

#endif  // RUNTIME_DEVICE_CUDA_PAGE_PINNER_H_
