// Memory on its way into the L2 cache before it is read.

#ifndef RUNTIME_KERNELS_L2_PREFETCH_CUH_
#define RUNTIME_KERNELS_L2_PREFETCH_CUH_

namespace megatrain {

// `data` is aligned to 16 bytes, `size_bytes` a multiple of 16. Returns at once.
__device__ inline void PrefetchToL2(const void* data, int size_bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(data), "r"(size_bytes));
}

}  // namespace megatrain

#endif  // RUNTIME_KERNELS_L2_PREFETCH_CUH_
