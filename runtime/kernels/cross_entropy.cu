#include <cooperative_groups.h>

#include <cfloat>
#include <climits>
#include <cmath>

#include "runtime/kernels/block_reduce.cuh"
#include "runtime/kernels/cross_entropy.h"
#include "runtime/kernels/cuda_status.h"
#include "runtime/kernels/numbers.cuh"
#include "runtime/kernels/scratch_size.h"

namespace megatrain {
namespace {

// A cluster of blocks takes one row, so that its logits fit into registers between the sum and the
// gradient: the first 163,840 of them are read once and exponentiated once, the rest twice.
constexpr int kClusterBlocks = 8;
constexpr int kThreads = 512;
constexpr int kHeldLogits = 40;  // a thread's

// A bf16 gradient that lies over the first half of its row's logits ends before those that are read
// twice.
static_assert(kMaxVocabInPlace / 2 <= kClusterBlocks * kThreads * kHeldLogits);

// Of a set of logits: the largest, and the sum of exp(logit - max).
struct MaxSum {
  float max;
  float sum;
};

// Exponentials below 2^-126 become 0: they are lost in a sum that holds a 1. (__expf would keep
// them, at three more instructions each.)
__device__ float Exp(float x) {
  constexpr float kLog2OfE = 1.44269504f;
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x * kLog2OfE));
  return result;
}

// Of no logits. Finite, so that no difference of two such is NaN.
__device__ MaxSum NoLogits() { return {-FLT_MAX, 0}; }

// With the arguments exchanged, the same bits.
__device__ MaxSum Combine(MaxSum a, MaxSum b) {
  const bool a_larger = a.max >= b.max;
  const float larger = a_larger ? a.max : b.max;
  const float smaller = a_larger ? b.max : a.max;
  const float rest = (a_larger ? b.sum : a.sum) * Exp(smaller - larger);
  return {larger, (a_larger ? a.sum : b.sum) + rest};
}

// Takes the logits' place: the exponentials of their distance to the largest. fmaxf passes over a
// NaN; the exponential of one is NaN, and so is the sum then.
template <int N, int kCount>
__device__ MaxSum Exponentiate(Pack<float, N> (&packs)[kCount]) {
  MaxSum result = NoLogits();
#pragma unroll
  for (int i = 0; i < kCount * N; ++i) {
    result.max = fmaxf(result.max, packs[i / N].values[i % N]);
  }
#pragma unroll
  for (int i = 0; i < kCount * N; ++i) {
    float& value = packs[i / N].values[i % N];
    value = Exp(value - result.max);
    result.sum += value;
  }
  return result;
}

// Of the blocks of this cluster, in their order; every thread of the cluster gets it. Arrives at
// the cluster's barrier: the caller waits there before it exits, since others may still read its
// block_result.
__device__ MaxSum ClusterReduce(const MaxSum& own, MaxSum* block_result) {
  const auto cluster = cooperative_groups::this_cluster();
  if (threadIdx.x == 0) {
    *block_result = own;
  }
  cluster.sync();
  MaxSum results[kClusterBlocks];
#pragma unroll
  for (int rank = 0; rank < kClusterBlocks; ++rank) {
    results[rank] = *cluster.map_shared_rank(block_result, rank);
  }
  cluster.barrier_arrive();
  MaxSum total = NoLogits();
#pragma unroll
  for (const MaxSum& result : results) {
    total = Combine(total, result);
  }
  return total;
}

// softmax scale = exp(logit - max) factor.
struct Softmax {
  float max;
  float factor;
  float scale;
};

// Softmax times scale is `exponentials` times `factor`. `target` is the target's place among the N
// columns, or any other number.
template <typename T, int N>
__device__ void StoreGradient(T* gradient, const Pack<float, N>& exponentials, float factor,
                              float scale, int target) {
  float result[N];
#pragma unroll
  for (int j = 0; j < N; ++j) {
    result[j] = exponentials.values[j] * factor;
  }
  if (static_cast<unsigned>(target) < N) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      result[j] -= j == target ? scale : 0.f;
    }
  }
  StoreFloats(gradient, result);
}

// A thread's share of a row: the packs first, first + kStride, ... Of these the leading kHeldPacks
// stay in registers; behind the row's end they are -infinity.
template <int N>
struct Share {
  static constexpr int kHeldPacks = kHeldLogits / N;
  static constexpr int kStride = kClusterBlocks * kThreads;

  const float* logits;  // the row
  int first;
  int pack_count;                   // of the row
  Pack<float, N> held[kHeldPacks];  // logits; after Sum the exponentials of their distance to:
  float held_max;

  __device__ void Load() {
#pragma unroll
    for (int i = 0; i < kHeldPacks; ++i) {
      const int pack = first + i * kStride;
      if (pack < pack_count) {
        held[i] = LoadPack<N>(logits + pack * N);
      } else {
        for (float& logit : held[i].values) {
          logit = -INFINITY;
        }
      }
    }
  }

  __device__ MaxSum Sum() {
    MaxSum result = Exponentiate(held);
    held_max = result.max;
    for (int pack = first + kHeldPacks * kStride; pack < pack_count; pack += kStride) {
      Pack<float, N> single[1] = {LoadPack<N>(logits + pack * N)};
      result = Combine(result, Exponentiate(single));
    }
    return result;
  }

  // `gradient` may be `logits`: every block has read its share before the cluster's reduction.
  template <typename T>
  __device__ void Store(T* gradient, const Softmax& softmax, int target) const {
    const float held_factor = Exp(held_max - softmax.max) * softmax.factor;
#pragma unroll
    for (int i = 0; i < kHeldPacks; ++i) {
      const int pack = first + i * kStride;
      if (pack < pack_count) {
        StoreGradient(gradient + pack * N, held[i], held_factor, softmax.scale, target - pack * N);
      }
    }
    for (int pack = first + kHeldPacks * kStride; pack < pack_count; pack += kStride) {
      Pack<float, N> late = LoadPack<N>(logits + pack * N);
#pragma unroll
      for (float& value : late.values) {
        value = Exp(value - softmax.max);
      }
      StoreGradient(gradient + pack * N, late, softmax.factor, softmax.scale, target - pack * N);
    }
  }
};

template <typename T, int N>
__global__ void __cluster_dims__(kClusterBlocks) __launch_bounds__(kThreads, 2)
    CrossEntropyKernel(CrossEntropy arguments) {
  __shared__ MaxSum warp_results[kMaxWarps];
  __shared__ MaxSum block_result;
  __shared__ float target_logit;  // the row's first thread's alone
  const auto cluster = cooperative_groups::this_cluster();
  const int64_t row = blockIdx.x / kClusterBlocks;
  const int target = arguments.targets[row];
  Share<N> share;
  share.logits = arguments.logits + row * arguments.vocab;
  share.first = cluster.block_rank() * kThreads + threadIdx.x;
  share.pack_count = arguments.vocab / N;
  share.Load();
  if (share.first == 0) {
    target_logit = share.logits[target];  // before the gradient takes its place
  }

  const MaxSum own = BlockReduce(share.Sum(), NoLogits(), warp_results, Combine);
  const MaxSum total = ClusterReduce(own, &block_result);
  if (share.first == 0) {
    arguments.losses[row] = total.max - target_logit + logf(total.sum);
  }
  if (arguments.gradient != nullptr) {
    const Softmax softmax = {total.max, arguments.scale / total.sum, arguments.scale};
    share.Store(static_cast<T*>(arguments.gradient) + row * arguments.gradient_stride, softmax,
                target);
  }
  cluster.barrier_wait();
}

struct LossSum {
  double sum;
  int64_t first_nonfinite;  // INT_MAX for none
};

__device__ LossSum Add(const LossSum& a, const LossSum& b) {
  return {a.sum + b.sum, min(a.first_nonfinite, b.first_nonfinite)};
}

constexpr int kSumThreads = 1024;

__global__ void __launch_bounds__(kSumThreads)
    SumLossesKernel(const float* losses, int64_t count, HeadResult* result) {
  __shared__ LossSum warp_results[kMaxWarps];
  const LossSum nothing = {0, INT_MAX};
  LossSum own = nothing;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < count; i += kSumThreads) {
    const float loss = losses[i];
    own = Add(own, {loss, isfinite(loss) ? INT_MAX : i});
  }
  const LossSum total = BlockReduce(own, nothing, warp_results, Add);
  if (threadIdx.x == 0) {
    result->loss_sum = total.sum;
    result->first_nonfinite =
        total.first_nonfinite == INT_MAX ? -1 : static_cast<int>(total.first_nonfinite);
  }
}

}  // namespace

absl::Status LaunchCrossEntropy(const CrossEntropy& arguments, cudaStream_t stream) {
  if (arguments.rows == 0) {
    return absl::OkStatus();
  }
  const auto launch = [&]<typename T, int N>(PackType<T, N>) {
    CrossEntropyKernel<T, N><<<arguments.rows * kClusterBlocks, kThreads, 0, stream>>>(arguments);
  };
  const bool whole_packs = arguments.vocab % 4 == 0;
  if (arguments.dtype == ComputeDtype::kFloat32) {
    whole_packs ? launch(PackType<float, 4>{}) : launch(PackType<float, 1>{});
  } else {
    whole_packs ? launch(PackType<__nv_bfloat16, 4>{}) : launch(PackType<__nv_bfloat16, 1>{});
  }
  return CheckLaunch("CrossEntropy");
}

absl::Status LaunchSumLosses(const float* losses, int64_t count, HeadResult* result,
                             cudaStream_t stream) {
  SumLossesKernel<<<1, kSumThreads, 0, stream>>>(losses, count, result);
  return CheckLaunch("SumLosses");
}

}  // namespace megatrain
