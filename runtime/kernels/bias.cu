#include <algorithm>

#include "runtime/base/status_macros.h"
#include "runtime/kernels/bias.h"
#include "runtime/kernels/column_sums.h"
#include "runtime/kernels/cuda_status.h"
#include "runtime/kernels/numbers.cuh"

namespace megatrain {
namespace {

constexpr int kThreads = 128;

// A thread sums one pack of columns over the rows blockIdx.y, blockIdx.y + gridDim.y, ...
template <typename T, int N>
__global__ void __launch_bounds__(kThreads) SumRowGroupsKernel(BiasBackward arguments) {
  const int64_t column = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * N;
  if (column >= arguments.width) {
    return;
  }
  const T* gradient = static_cast<const T*>(arguments.y_gradient) + column;
  float sums[N] = {};
  // Counted, so that the unrolled loads of several rows are in flight at once.
  const int64_t count = CeilDivide(arguments.rows - blockIdx.y, gridDim.y);
#pragma unroll 8
  for (int64_t turn = 0; turn < count; ++turn) {
    const int64_t row = blockIdx.y + turn * gridDim.y;
    const auto pack = LoadNumbers<N>(gradient + row * arguments.row_stride);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      sums[i] += pack[i];
    }
  }
  StoreFloats(static_cast<float*>(arguments.scratch) + blockIdx.y * arguments.width + column, sums);
}

}  // namespace

absl::Status LaunchBiasBackward(const BiasBackward& arguments, cudaStream_t stream) {
  if (arguments.rows == 0) {
    return absl::OkStatus();
  }
  const int64_t groups = std::min(arguments.rows, kBiasRowGroups);
  DispatchPacks(arguments.dtype, {arguments.width, arguments.row_stride},
                [&]<typename T, int N>(PackType<T, N>) {
                  const dim3 grid(CeilDivide(arguments.width / N, kThreads), groups);
                  SumRowGroupsKernel<T, N><<<grid, kThreads, 0, stream>>>(arguments);
                });
  MT_RETURN_IF_ERROR(CheckLaunch("BiasBackward"));
  return LaunchAddColumnSums(static_cast<const float*>(arguments.scratch), groups, arguments.width,
                             arguments.bias_gradient, stream);
}

}  // namespace megatrain
