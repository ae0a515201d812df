#include "runtime/base/status_macros.h"
#include "runtime/kernels/column_sums.h"
#include "runtime/kernels/cuda_status.h"
#include "runtime/kernels/l2_prefetch.cuh"
#include "runtime/kernels/numbers.cuh"
#include "runtime/kernels/qkv_gradient.h"

namespace megatrain {
namespace {

constexpr int kMaxThreads = 512;

// N channel pairs of a head in one row.
template <typename T, int N>
struct Channels {
  Numbers<T, N> first, second;

  // RotateKernel's formula with the angles' sign turned.
  __device__ void TurnBack(const float2* angles, float (&a)[N], float (&b)[N]) const {
    const auto pack = LoadPack<N>(angles);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float cosine = pack.values[j].x;
      const float sine = -pack.values[j].y;
      a[j] = first[j] * cosine - second[j] * sine;
      b[j] = second[j] * cosine + first[j] * sine;
    }
  }

  __device__ void Keep(float (&a)[N], float (&b)[N]) const {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      a[j] = first[j];
      b[j] = second[j];
    }
  }
};

template <int N>
__device__ void AddTo(float (&sums)[N], const float (&values)[N]) {
#pragma unroll
  for (int j = 0; j < N; ++j) {
    sums[j] += values[j];
  }
}

// A thread takes N channel pairs of a head in every gridDim.y-th row, from the end: what was
// written last before is the likeliest to be in the cache. A row's reads wait for nothing but the
// L2 cache: the row before has fetched them.
template <typename T, int N>
__global__ void __launch_bounds__(kMaxThreads, 2) TurnBackAndSumKernel(QkvGradient gradient) {
  const Rotation& rotation = gradient.rotation;
  const int half = rotation.head_dim / 2;
  const int columns = half / N;
  const int task = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const int head = task / columns;
  if (head >= gradient.head_count) {
    return;
  }
  const int column = task % columns * N;
  const int64_t place = int64_t{head} * rotation.head_dim + column;
  const bool turns = head < rotation.head_count;
  const float2* const angles = rotation.table + column;
  T* const pairs = static_cast<T*>(rotation.heads) + place;
  float first_sums[N] = {}, second_sums[N] = {};
  for (int64_t row = rotation.tokens - 1 - blockIdx.y; row >= 0; row -= gridDim.y) {
    T* const at = pairs + row * rotation.row_stride;
    const Channels<T, N> channels = {LoadNumbers<N>(at), LoadNumbers<N>(at + half)};
    if (task == 0 && row >= gridDim.y) {
      PrefetchToL2<N>(
          static_cast<const T*>(rotation.heads) + (row - gridDim.y) * rotation.row_stride,
          static_cast<int>(gradient.head_count * rotation.head_dim * sizeof(T)));
    }
    float a[N], b[N];
    if (turns) {
      channels.TurnBack(angles + int64_t{rotation.positions[row]} * half, a, b);
      StoreFloats(at, a);
      StoreFloats(at + half, b);
    } else {
      channels.Keep(a, b);
    }
    AddTo(first_sums, a);
    AddTo(second_sums, b);
  }
  const int64_t width = gradient.head_count * rotation.head_dim;
  float* const partial = static_cast<float*>(gradient.scratch) + blockIdx.y * width + place;
  StoreFloats(partial, first_sums);
  StoreFloats(partial + half, second_sums);
}

}  // namespace

absl::Status LaunchRotateBackwardAndSum(const QkvGradient& gradient, cudaStream_t stream) {
  const Rotation& rotation = gradient.rotation;
  if (rotation.tokens == 0) {
    return absl::OkStatus();
  }
  const int64_t half = rotation.head_dim / 2;
  const int64_t width = gradient.head_count * rotation.head_dim;
  const int64_t groups = BiasRowGroups(rotation.tokens, width);
  DispatchPacks(
      rotation.dtype, {half, rotation.row_stride}, [&]<typename T, int N>(PackType<T, N>) {
        const int64_t tasks = gradient.head_count * (half / N);
        const int64_t blocks = CeilDivide(tasks, kMaxThreads);
        const int threads = ThreadsFor(CeilDivide(tasks, blocks), 1, kMaxThreads);
        TurnBackAndSumKernel<T, N><<<dim3(blocks, groups), threads, 0, stream>>>(gradient);
      });
  MT_RETURN_IF_ERROR(CheckLaunch("RotateBackwardAndSum"));
  return LaunchAddColumnSums(static_cast<const float*>(gradient.scratch), groups, width,
                             gradient.bias_gradient, stream);
}

}  // namespace megatrain
