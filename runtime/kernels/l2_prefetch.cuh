// Memory on its way into the L2 cache before it is read.

#ifndef RUNTIME_KERNELS_L2_PREFETCH_CUH_
#define RUNTIME_KERNELS_L2_PREFETCH_CUH_

namespace megatrain {

// Of rows that are read in packs of N: with N of 1 nothing, since the instruction wants `data`
// aligned to 16 bytes and `size_bytes` a multiple of 16, as larger packs are. Returns at once.
template <int N>
__device__ void PrefetchToL2(const void* data, int size_bytes) {
  if constexpr (N > 1) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(data), "r"(size_bytes));
  }
}

}  // namespace megatrain

#endif  // RUNTIME_KERNELS_L2_PREFETCH_CUH_
