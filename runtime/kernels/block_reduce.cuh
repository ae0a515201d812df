// Reductions over the threads of a block, in an order that the number of threads alone decides.

#ifndef RUNTIME_KERNELS_BLOCK_REDUCE_CUH_
#define RUNTIME_KERNELS_BLOCK_REDUCE_CUH_

#include <cstdint>
#include <cstring>

namespace megatrain {

inline constexpr int kWarpThreads = 32;
inline constexpr int kMaxWarps = 32;

template <typename V>
__device__ V ShuffleXor(V value, int lane_mask) {
  static_assert(sizeof(V) % sizeof(uint32_t) == 0);
  uint32_t words[sizeof(V) / sizeof(uint32_t)];
  std::memcpy(words, &value, sizeof(V));
  for (uint32_t& word : words) {
    word = __shfl_xor_sync(0xffffffffu, word, lane_mask);
  }
  std::memcpy(&value, words, sizeof(V));
  return value;
}

template <typename V, typename Combine>
__device__ V WarpReduce(V value, Combine combine) {
#pragma unroll
  for (int lane_mask = kWarpThreads / 2; lane_mask > 0; lane_mask /= 2) {
    value = combine(value, ShuffleXor(value, lane_mask));
  }
  return value;
}

// The values of all threads of a block of whole warps, combined; every thread gets the result.
// `combine` must give the same bits with its arguments exchanged; `identity` changes nothing.
// `shared` must not be in use by an earlier call that some thread may still be in: calls in a loop
// take turns between two.
template <typename V, typename Combine>
__device__ V BlockReduce(V value, V identity, V (&shared)[kMaxWarps], Combine combine) {
  const int lane = threadIdx.x % kWarpThreads;
  value = WarpReduce(value, combine);
  if (lane == 0) {
    shared[threadIdx.x / kWarpThreads] = value;
  }
  __syncthreads();
  const int warps = blockDim.x / kWarpThreads;
  return WarpReduce(lane < warps ? shared[lane] : identity, combine);
}

}  // namespace megatrain

#endif  // RUNTIME_KERNELS_BLOCK_REDUCE_CUH_
