#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/kernels/block_reduce.cuh"
#include "runtime/kernels/column_sums.h"
#include "runtime/kernels/cuda_status.h"
#include "runtime/kernels/numbers.cuh"
#include "runtime/kernels/rms_norm.h"

namespace megatrain {
namespace {

constexpr int kHeldElements = 32;  // a thread's, of a row
// A block's most threads: wide rows need twice as many, which have half of the registers each.
constexpr int kThreads = 512;
constexpr int kWideThreads = 1024;
static_assert(kMaxRmsNormWidth == kHeldElements * kWideThreads);

// This thread's packs of a row, in registers: pack threadIdx.x, threadIdx.x + blockDim.x, ...
// Behind the row's end they are zero.
template <typename T, int N>
struct HeldRow {
  static constexpr int kPacks = kHeldElements / N;
  Numbers<T, N> packs[kPacks];

  __device__ explicit HeldRow(const T* row, int pack_count) {
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const int index = threadIdx.x + i * blockDim.x;
      packs[i] = index < pack_count ? LoadNumbers<N>(row + index * N) : Numbers<T, N>{};
    }
  }
};

__device__ float BlockSum(float value, float (&shared)[kMaxWarps]) {
  return BlockReduce(value, 0.f, shared, [](float a, float b) { return a + b; });
}

// One formula for both directions, so that both give the same bits.
__device__ float Normed(float x, float inverse_rms, float weight) {
  return x * inverse_rms * weight;
}

// One block a row, from the last: what was written last before is the likeliest to be in the cache.
template <typename T, int N, int kMostThreads>
__global__ void __launch_bounds__(kMostThreads, 2 * kThreads / kMostThreads)
    ForwardKernel(RmsNormForward arguments) {
  __shared__ float warp_sums[kMaxWarps];
  const int pack_count = arguments.width / N;
  const int64_t row = gridDim.x - 1 - blockIdx.x;
  const int64_t row_start = row * arguments.width;
  const HeldRow<T, N> x(static_cast<const T*>(arguments.x) + row_start, pack_count);
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
}

// What one row's backward pass reads, in registers.
template <typename T, int N>
struct BackwardRow {
  HeldRow<T, N> x;
  HeldRow<T, N> gradient;
  HeldRow<T, N> residual;
  float inverse_rms;

  __device__ BackwardRow(const RmsNormBackward& arguments, int64_t row, int pack_count)
      : x(static_cast<const T*>(arguments.x) + row * arguments.width, pack_count),
        gradient(static_cast<const T*>(arguments.normed_gradient) + row * arguments.width,
                 pack_count),
        residual(static_cast<const T*>(arguments.x_gradient) + row * arguments.width, pack_count),
        inverse_rms(arguments.inverse_rms[row]) {}
};

// Adds g n to this thread's columns of the weight gradient; gives its sum of g w x.
template <typename T, int N>
__device__ float SumProducts(const BackwardRow<T, N>& row, const T* __restrict__ weight,
                             int pack_count, float* weight_sums) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < HeldRow<T, N>::kPacks; ++i) {
    const int index = threadIdx.x + i * blockDim.x;
    if (index < pack_count) {
      const auto weights = LoadNumbers<N>(weight + index * N);
      const auto sums_before = LoadNumbers<N>(weight_sums + index * N);
      float sums[N];
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float product = row.gradient.packs[i][j] * row.x.packs[i][j];
        sum += product * weights[j];
        sums[j] = sums_before[j] + product * row.inverse_rms;
      }
      StoreFloats(weight_sums + index * N, sums);
    }
  }
  return sum;
}

// `mean` is that of g w n over the row.
template <typename T, int N>
__device__ void StoreResults(const BackwardRow<T, N>& row, float mean, const T* __restrict__ weight,
                             int pack_count, T* x_gradient, T* normed) {
  const float r = row.inverse_rms;
#pragma unroll
  for (int i = 0; i < HeldRow<T, N>::kPacks; ++i) {
    const int index = threadIdx.x + i * blockDim.x;
    if (index < pack_count) {
      const auto weights = LoadNumbers<N>(weight + index * N);
      float results[N], normed_again[N];
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float x = row.x.packs[i][j];
        const float direct = row.gradient.packs[i][j] * weights[j];
        results[j] = row.residual.packs[i][j] + r * (direct - x * r * mean);
        normed_again[j] = Normed(x, r, weights[j]);
      }
      StoreFloats(x_gradient + index * N, results);
      if (normed != nullptr) {
        StoreFloats(normed + index * N, normed_again);
      }
    }
  }
}

// Brings what BackwardRow will read on its way into the L2 cache. One thread's work.
template <typename T, int N>
__device__ void PrefetchRow(const RmsNormBackward& arguments, int64_t row) {
  if constexpr (N > 1) {  // whole packs of 16 bytes, as the instruction wants them
    const int64_t row_bytes = arguments.width * static_cast<int64_t>(sizeof(T));
    for (const void* matrix :
         {arguments.x, arguments.normed_gradient, static_cast<const void*>(arguments.x_gradient)}) {
      asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(
                       static_cast<const char*>(matrix) + row * row_bytes),
                   "r"(static_cast<int>(row_bytes)));
    }
  }
}

// With r = inverse rms, n = r x and g = d loss / d normed:
// d weight = sum over rows of g n; d x = r (g w - n mean(g w n)).
// A block takes every gridDim.x-th row, from the end, and sums their share of the weight gradient
// in shared memory, each thread its own columns. A row's reads wait for nothing but the L2 cache:
// the row before has fetched them.
template <typename T, int N, int kMostThreads>
__global__ void __launch_bounds__(kMostThreads) BackwardKernel(RmsNormBackward arguments) {
  extern __shared__ __align__(16) float weight_sums[];
  __shared__ float warp_sums[2][kMaxWarps];
  const int64_t width = arguments.width;
  const int pack_count = width / N;
  const T* weight = static_cast<const T*>(arguments.weight);
  T* normed = static_cast<T*>(arguments.normed);
  for (int column = threadIdx.x; column < width; column += blockDim.x) {
    weight_sums[column] = 0;
  }
  __syncthreads();
  int turn = 0;
  for (int64_t row = arguments.rows - 1 - blockIdx.x; row >= 0; row -= gridDim.x, turn ^= 1) {
    const BackwardRow<T, N> held(arguments, row, pack_count);
    if (threadIdx.x == 0 && row >= gridDim.x) {
      PrefetchRow<T, N>(arguments, row - gridDim.x);
    }
    const float sum = BlockSum(SumProducts(held, weight, pack_count, weight_sums), warp_sums[turn]);
    StoreResults(held, sum * held.inverse_rms / static_cast<float>(width), weight, pack_count,
                 static_cast<T*>(arguments.x_gradient) + row * width,
                 normed == nullptr ? nullptr : normed + row * width);
  }
  __syncthreads();
  float* partial = static_cast<float*>(arguments.scratch) + blockIdx.x * width;
  for (int column = threadIdx.x; column < width; column += blockDim.x) {
    partial[column] = weight_sums[column];
  }
}

absl::Status CheckWidth(int64_t width) {
  return width <= kMaxRmsNormWidth ? absl::OkStatus()
                                   : absl::InvalidArgumentError(absl::StrCat(
                                         "RMSNorm: rows of ", width, " elements, more than the ",
                                         kMaxRmsNormWidth, " a block holds"));
}

template <int N>
int RowThreads(int64_t width) {
  return ThreadsFor(width / N, kHeldElements / N, kWideThreads);
}

// Calls launch<most threads of a block>() for rows of `width`.
template <typename Launch>
absl::Status DispatchThreads(int64_t width, Launch launch) {
  return width <= kHeldElements * kThreads ? launch.template operator()<kThreads>()
                                           : launch.template operator()<kWideThreads>();
}

// More shared memory than a kernel gets unasked.
template <typename Kernel>
absl::Status AllowSharedMemory(Kernel kernel, int64_t size_bytes) {
  constexpr int64_t kUnasked = 48 * 1024 - sizeof(float[2][kMaxWarps]);
  return size_bytes <= kUnasked
             ? absl::OkStatus()
             : CudaStatus(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                               static_cast<int>(size_bytes)),
                          "RmsNormBackward shared memory");
}

}  // namespace

absl::Status LaunchRmsNormForward(const RmsNormForward& arguments, cudaStream_t stream) {
  MT_RETURN_IF_ERROR(CheckWidth(arguments.width));
  if (arguments.rows == 0) {
    return absl::OkStatus();
  }
  const auto launch = [&]<typename T, int N>(PackType<T, N>) {
    return DispatchThreads(arguments.width, [&]<int kMostThreads>() {
      ForwardKernel<T, N, kMostThreads>
          <<<arguments.rows, RowThreads<N>(arguments.width), 0, stream>>>(arguments);
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
  const int64_t shared_bytes = arguments.width * static_cast<int64_t>(sizeof(float));
  const auto launch = [&]<typename T, int N>(PackType<T, N>) {
    return DispatchThreads(arguments.width, [&]<int kMostThreads>() {
      const auto kernel = BackwardKernel<T, N, kMostThreads>;
      MT_RETURN_IF_ERROR(AllowSharedMemory(kernel, shared_bytes));
      kernel<<<groups, RowThreads<N>(arguments.width), shared_bytes, stream>>>(arguments);
      return CheckLaunch("RmsNormBackward");
    });
  };
  MT_RETURN_IF_ERROR(DispatchPacks(arguments.dtype, {arguments.width}, launch));
  return LaunchAddColumnSums(static_cast<const float*>(arguments.scratch), groups, arguments.width,
                             arguments.weight_gradient, stream);
}

}  // namespace megatrain
