#include "runtime/kernels/cuda_status.h"
#include "runtime/kernels/numbers.cuh"
#include "runtime/kernels/rows.h"

namespace megatrain {
namespace {

constexpr int kMaxThreads = 256;
constexpr int kPacksPerThread = 4;

template <typename T, int N>
__device__ void CopyRow(const T* __restrict__ source, T* __restrict__ target, int64_t width) {
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < width / N; i += blockDim.x) {
    StoreNumbers(target + i * N, LoadNumbers<N>(source + i * N));
  }
}

// One block a row.
template <typename T, int N>
__global__ void __launch_bounds__(kMaxThreads)
    GatherKernel(const T* table, RowIndices indices, T* out) {
  const int64_t row = indices.rows[blockIdx.x];
  CopyRow<T, N>(table + row * indices.width, out + blockIdx.x * indices.width, indices.width);
}

template <typename T, int N>
__global__ void __launch_bounds__(kMaxThreads)
    ScatterKernel(const T* values, RowIndices indices, T* out) {
  const int64_t row = indices.rows[blockIdx.x];
  CopyRow<T, N>(values + blockIdx.x * indices.width, out + row * indices.width, indices.width);
}

// One block a segment and, in y, a part of its columns; a thread owns one pack of them.
template <typename T, int N>
__global__ void __launch_bounds__(kMaxThreads)
    AddKernel(const T* __restrict__ values, SortedRows sorted, int64_t width, float* table) {
  const int64_t column = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * N;
  if (column >= width) {
    return;
  }
  const int segment = blockIdx.x;
  float* target = table + sorted.rows[segment] * width + column;
  const int end = sorted.starts[segment + 1];
  const auto before = LoadNumbers<N>(target);
  float sums[N];
#pragma unroll
  for (int j = 0; j < N; ++j) {
    sums[j] = before[j];
  }
#pragma unroll 4
  for (int i = sorted.starts[segment]; i < end; ++i) {
    const auto added = LoadNumbers<N>(values + sorted.order[i] * width + column);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      sums[j] += added[j];
    }
  }
  StoreFloats(target, sums);
}

}  // namespace

absl::Status LaunchGatherRows(const void* table, const RowIndices& indices, void* out,
                              cudaStream_t stream) {
  if (indices.count == 0) {
    return absl::OkStatus();
  }
  DispatchPacks(indices.dtype, {indices.width}, [&]<typename T, int N>(PackType<T, N>) {
    const int threads = ThreadsFor(indices.width / N, kPacksPerThread, kMaxThreads);
    GatherKernel<T, N><<<indices.count, threads, 0, stream>>>(static_cast<const T*>(table), indices,
                                                              static_cast<T*>(out));
  });
  return CheckLaunch("GatherRows");
}

absl::Status LaunchScatterRows(const void* values, const RowIndices& indices, void* out,
                               cudaStream_t stream) {
  if (indices.count == 0) {
    return absl::OkStatus();
  }
  DispatchPacks(indices.dtype, {indices.width}, [&]<typename T, int N>(PackType<T, N>) {
    const int threads = ThreadsFor(indices.width / N, kPacksPerThread, kMaxThreads);
    ScatterKernel<T, N><<<indices.count, threads, 0, stream>>>(static_cast<const T*>(values),
                                                               indices, static_cast<T*>(out));
  });
  return CheckLaunch("ScatterRows");
}

absl::Status LaunchAddRows(const void* values, const SortedRows& sorted, int64_t width,
                           ComputeDtype dtype, float* table, cudaStream_t stream) {
  if (sorted.segment_count == 0) {
    return absl::OkStatus();
  }
  DispatchPacks(dtype, {width}, [&]<typename T, int N>(PackType<T, N>) {
    constexpr int kThreads = 128;
    const dim3 grid(sorted.segment_count, CeilDivide(width / N, kThreads));
    AddKernel<T, N>
        <<<grid, kThreads, 0, stream>>>(static_cast<const T*>(values), sorted, width, table);
  });
  return CheckLaunch("AddRows");
}

}  // namespace megatrain
