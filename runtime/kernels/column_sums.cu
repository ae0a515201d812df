#include "runtime/kernels/column_sums.h"
#include "runtime/kernels/cuda_status.h"

namespace megatrain {
namespace {

constexpr int kColumns = 32;  // of a block
constexpr int kSlices = 32;   // of the groups, summed by one thread each

__global__ void __launch_bounds__(kColumns* kSlices)
    AddColumnSumsKernel(const float* partial, int64_t groups, int64_t width, float* sums) {
  __shared__ float slices[kSlices][kColumns];
  const int64_t column = int64_t{blockIdx.x} * kColumns + threadIdx.x;
  float sum = 0;
  if (column < width) {
#pragma unroll 8
    for (int64_t group = threadIdx.y; group < groups; group += kSlices) {
      sum += partial[group * width + column];
    }
  }
  slices[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= width) {
    return;
  }
  float total = 0;
  for (int slice = 0; slice < kSlices; ++slice) {
    total += slices[slice][threadIdx.x];
  }
  sums[column] += total;
}

}  // namespace

absl::Status LaunchAddColumnSums(const float* partial, int64_t groups, int64_t width, float* sums,
                                 cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((width + kColumns - 1) / kColumns);
  AddColumnSumsKernel<<<blocks, dim3(kColumns, kSlices), 0, stream>>>(partial, groups, width, sums);
  return CheckLaunch("AddColumnSums");
}

}  // namespace megatrain
