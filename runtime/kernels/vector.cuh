// Elements loaded and stored in packs, and how threads share them.

#ifndef RUNTIME_KERNELS_VECTOR_CUH_
#define RUNTIME_KERNELS_VECTOR_CUH_

#include <algorithm>
#include <cstdint>

namespace megatrain {

// N neighbours: one load or store when they lie at a multiple of the pack's size. Larger packs than
// 16 bytes are moved 16 bytes at a time.
template <typename T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack {
  T values[N];
};

template <int N, typename T>
__device__ Pack<T, N> LoadPack(const T* source) {
  return *reinterpret_cast<const Pack<T, N>*>(source);
}

template <typename T, int N>
__device__ void StorePack(T* target, const Pack<T, N>& pack) {
  *reinterpret_cast<Pack<T, N>*>(target) = pack;
}

__host__ __device__ constexpr int64_t CeilDivide(int64_t value, int64_t divisor) {
  return (value + divisor - 1) / divisor;
}

// Whole warps that give each thread `packs_per_thread` of `packs`, at most `most`.
constexpr int ThreadsFor(int64_t packs, int64_t packs_per_thread, int64_t most) {
  constexpr int64_t kWarp = 32;
  const int64_t threads = CeilDivide(packs, packs_per_thread);
  return static_cast<int>(std::min(most, CeilDivide(threads, kWarp) * kWarp));
}

}  // namespace megatrain

#endif  // RUNTIME_KERNELS_VECTOR_CUH_
