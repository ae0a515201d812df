#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/kernels/block_reduce.cuh"
#include "runtime/kernels/column_sums.h"
#include "runtime/kernels/cuda_status.h"
#include "runtime/kernels/l2_prefetch.cuh"
#include "runtime/kernels/numbers.cuh"
#include "runtime/kernels/rms_norm.h"

namespace megatrain {
namespace {

// How a block holds a row in registers: the elements of a thread, and its most threads. Of the wide
// ones backward keeps a part in local memory: they are rare, and right, and not as fast.
template <int kElements, int kMostThreads>
struct RowShape {
  static constexpr int kHeldElements = kElements;
  static constexpr int kThreads = kMostThreads;
  static constexpr int64_t kWidth = int64_t{kElements} * kMostThreads;
};
using NarrowRow = RowShape<16, 512>;
using WideRow = RowShape<16, 1024>;
using WidestRow = RowShape<32, 1024>;
static_assert(kMaxRmsNormWidth == WidestRow::kWidth);

// This thread's packs of a row, in registers: pack threadIdx.x, threadIdx.x + blockDim.x, ...
// Behind the row's end they are zero.
template <typename T, int N, int kElements>
struct HeldRow {
  static constexpr int kPacks = kElements / N;
  Numbers<T, N> packs[kPacks];

  __device__ explicit HeldRow(const T* row, int pack_count) {
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const int index = threadIdx.x + i * blockDim.x;
      packs[i] = index < pack_count ? LoadNumbers<N>(row + index * N) : Numbers<T, N>{};
    }
  }
};

template <typename T, int N, int kElements>
__device__ bool HasNonFinite(const HeldRow<T, N, kElements>& row) {
  bool found = false;
#pragma unroll
  for (int i = 0; i < row.kPacks; ++i) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      found = found || !isfinite(row.packs[i][j]);
    }
  }
  return found;
}

__device__ float BlockSum(float value, float (&shared)[kMaxWarps]) {
  return BlockReduce(value, 0.f, shared, [](float a, float b) { return a + b; });
}

// One formula for both directions, so that both give the same bits.
__device__ float Normed(float x, float inverse_rms, float weight) {
  return x * inverse_rms * weight;
}

// One block a row, from the last: what was written last before is the likeliest to be in the cache.
template <typename T, int N, typename Shape>
__global__ void __launch_bounds__(Shape::kThreads) ForwardKernel(RmsNormForward arguments) {
  __shared__ float warp_sums[kMaxWarps];
  const int pack_count = arguments.width / N;
  const int64_t row = gridDim.x - 1 - blockIdx.x;
  const int64_t row_start = row * arguments.width;
  const HeldRow<T, N, Shape::kHeldElements> x(static_cast<const T*>(arguments.x) + row_start,
                                              pack_count);
  const T* __restrict__ weight = static_cast<const T*>(arguments.weight);
  float squares = 0;
#pragma unroll
  for (int i = 0; i < x.kPacks; ++i) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float value = x.packs[i][j];
      squares += value * value;
    }
  }
  const float mean = BlockSum(squares, warp_sums) / static_cast<float>(arguments.width);
  const float inverse_rms = rsqrtf(mean + arguments.epsilon);
#pragma unroll
  for (int i = 0; i < x.kPacks; ++i) {
    const int index = threadIdx.x + i * blockDim.x;
    if (index < pack_count) {
      const auto weights = LoadNumbers<N>(weight + index * N);
      float normed[N];
#pragma unroll
      for (int j = 0; j < N; ++j) {
        normed[j] = Normed(x.packs[i][j], inverse_rms, weights[j]);
      }
      StoreFloats(static_cast<T*>(arguments.normed) + row_start + index * N, normed);
    }
  }
  if (threadIdx.x == 0 && arguments.inverse_rms != nullptr) {
    arguments.inverse_rms[row] = inverse_rms;
  }
  if (arguments.mark != nullptr && !isfinite(mean)) {  // of the row: for all threads or for none
    const bool found = __syncthreads_or(HasNonFinite(x));
    if (found && threadIdx.x == 0) {
      atomicMin(reinterpret_cast<unsigned int*>(arguments.mark), static_cast<unsigned int>(row));
    }
  }
}

// What one row's backward pass reads, in registers.
template <typename T, int N, int kElements>
struct BackwardRow {
  using Held = HeldRow<T, N, kElements>;
  Held x;
  Held gradient;
  Held residual;
  float inverse_rms;

  __device__ BackwardRow(const RmsNormBackward& arguments, int64_t row, int pack_count)
      : x(static_cast<const T*>(arguments.x) + row * arguments.width, pack_count),
        gradient(static_cast<const T*>(arguments.normed_gradient) + row * arguments.width,
                 pack_count),
        residual(static_cast<const T*>(arguments.x_gradient) + row * arguments.width, pack_count),
        inverse_rms(arguments.inverse_rms[row]) {}

  // Adds g n to the sums of this thread's columns; gives its sum of g w x.
  __device__ float SumProducts(const T* __restrict__ weight, int pack_count,
                               float (&weight_sums)[Held::kPacks][N]) const {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < Held::kPacks; ++i) {
      const int index = threadIdx.x + i * blockDim.x;
      if (index < pack_count) {
        const auto weights = LoadNumbers<N>(weight + index * N);
#pragma unroll
        for (int j = 0; j < N; ++j) {
          const float product = gradient.packs[i][j] * x.packs[i][j];
          sum += product * weights[j];
          weight_sums[i][j] += product * inverse_rms;
        }
      }
    }
    return sum;
  }

  // `mean` is that of g w n over the row; the results are the row's.
  __device__ void Store(float mean, const T* __restrict__ weight, int pack_count, T* x_gradient,
                        T* normed) const {
    const float r = inverse_rms;
#pragma unroll
    for (int i = 0; i < Held::kPacks; ++i) {
      const int index = threadIdx.x + i * blockDim.x;
      if (index < pack_count) {
        const auto weights = LoadNumbers<N>(weight + index * N);
        float results[N], normed_again[N];
#pragma unroll
        for (int j = 0; j < N; ++j) {
          const float direct = gradient.packs[i][j] * weights[j];
          results[j] = residual.packs[i][j] + r * (direct - x.packs[i][j] * r * mean);
          normed_again[j] = Normed(x.packs[i][j], r, weights[j]);
        }
        StoreFloats(x_gradient + index * N, results);
        if (normed != nullptr) {
          StoreFloats(normed + index * N, normed_again);
        }
      }
    }
  }
};

// Brings what BackwardRow will read on its way into the L2 cache. One thread's work.
template <typename T, int N>
__device__ void PrefetchRow(const RmsNormBackward& arguments, int64_t row) {
  const int64_t row_bytes = arguments.width * static_cast<int64_t>(sizeof(T));
  for (const void* matrix :
       {arguments.x, arguments.normed_gradient, static_cast<const void*>(arguments.x_gradient)}) {
    PrefetchToL2<N>(static_cast<const char*>(matrix) + row * row_bytes,
                    static_cast<int>(row_bytes));
  }
}

// With r = inverse rms, n = r x and g = d loss / d normed:
// d weight = sum over rows of g n; d x = r (g w - n mean(g w n)).
// A block takes every gridDim.x-th row, from the end, and sums their share of the weight gradient,
// each thread its own columns. A row's reads wait for nothing but the L2 cache: the row before has
// fetched them.
template <typename T, int N, typename Shape>
__global__ void __launch_bounds__(Shape::kThreads) BackwardKernel(RmsNormBackward arguments) {
  using Row = BackwardRow<T, N, Shape::kHeldElements>;
  __shared__ float warp_sums[2][kMaxWarps];
  const int64_t width = arguments.width;
  const int pack_count = width / N;
  const T* weight = static_cast<const T*>(arguments.weight);
  T* normed = static_cast<T*>(arguments.normed);
  float weight_sums[Row::Held::kPacks][N] = {};
  int turn = 0;
  for (int64_t row = arguments.rows - 1 - blockIdx.x; row >= 0; row -= gridDim.x, turn ^= 1) {
    const Row held(arguments, row, pack_count);
    if (threadIdx.x == 0 && row >= gridDim.x) {
      PrefetchRow<T, N>(arguments, row - gridDim.x);
    }
    const float sum = BlockSum(held.SumProducts(weight, pack_count, weight_sums), warp_sums[turn]);
    held.Store(sum * held.inverse_rms / static_cast<float>(width), weight, pack_count,
               static_cast<T*>(arguments.x_gradient) + row * width,
               normed == nullptr ? nullptr : normed + row * width);
  }
  float* partial = static_cast<float*>(arguments.scratch) + blockIdx.x * width;
#pragma unroll
  for (int i = 0; i < Row::Held::kPacks; ++i) {
    const int index = threadIdx.x + i * blockDim.x;
    if (index < pack_count) {
      StoreFloats(partial + index * N, weight_sums[i]);
    }
  }
}

absl::Status CheckWidth(int64_t width) {
  return width <= kMaxRmsNormWidth ? absl::OkStatus()
                                   : absl::InvalidArgumentError(absl::StrCat(
                                         "RMSNorm: rows of ", width, " elements, more than the ",
                                         kMaxRmsNormWidth, " a block holds"));
}

// launch(shape, threads of a block) for rows of `width`, in packs of N.
template <int N, typename Launch>
absl::Status DispatchShape(int64_t width, Launch launch) {
  const auto with = [&]<typename Shape>(Shape shape) {
    return launch(shape, ThreadsFor(width / N, Shape::kHeldElements / N, Shape::kThreads));
  };
  if (width <= NarrowRow::kWidth) {
    return with(NarrowRow{});
  }
  return width <= WideRow::kWidth ? with(WideRow{}) : with(WidestRow{});
}

}  // namespace

absl::Status LaunchRmsNormForward(const RmsNormForward& arguments, cudaStream_t stream) {
  MT_RETURN_IF_ERROR(CheckWidth(arguments.width));
  if (arguments.rows == 0) {
    return absl::OkStatus();
  }
  const auto launch = [&]<typename T, int N>(PackType<T, N>) {
    return DispatchShape<N>(arguments.width, [&]<typename Shape>(Shape, int threads) {
      ForwardKernel<T, N, Shape><<<arguments.rows, threads, 0, stream>>>(arguments);
      return CheckLaunch("RmsNormForward");
    });
  };
  return DispatchPacks(arguments.dtype, {arguments.width}, launch);
}

absl::Status LaunchRmsNormBackward(const RmsNormBackward& arguments, cudaStream_t stream) {
  MT_RETURN_IF_ERROR(CheckWidth(arguments.width));
  if (arguments.rows == 0) {
    return absl::OkStatus();
  }
  const int64_t groups = RmsNormRowGroups(arguments.rows, arguments.width);
  const auto launch = [&]<typename T, int N>(PackType<T, N>) {
    return DispatchShape<N>(arguments.width, [&]<typename Shape>(Shape, int threads) {
      BackwardKernel<T, N, Shape><<<groups, threads, 0, stream>>>(arguments);
      return CheckLaunch("RmsNormBackward");
    });
  };
  MT_RETURN_IF_ERROR(DispatchPacks(arguments.dtype, {arguments.width}, launch));
  return LaunchAddColumnSums(static_cast<const float*>(arguments.scratch), groups, arguments.width,
                             arguments.weight_gradient, stream);
}

}  // namespace megatrain
