#include <cuda_runtime.h>

#include <cstdint>

#include "runtime/kernels/cuda_status.h"
#include "runtime/kernels/join_rows.h"

namespace megatrain {
namespace {

constexpr int kThreads = 128;

// One block a row, in words of 16 bytes.
__global__ void __launch_bounds__(kThreads) JoinRowsKernel(const RowJoin join) {
  const int64_t width = join.width_bytes / 16;
  const int64_t row = blockIdx.x;
  const uint4* left = static_cast<const uint4*>(join.left) + row * width;
  const uint4* right = static_cast<const uint4*>(join.right) + row * width;
  uint4* target = static_cast<uint4*>(join.target) + row * (join.stride_bytes / 16);
  for (int64_t i = threadIdx.x; i < 2 * width; i += kThreads) {
    target[i] = i < width ? left[i] : right[i - width];
  }
}

}  // namespace

absl::Status LaunchJoinRows(const RowJoin& join, cudaStream_t stream) {
  JoinRowsKernel<<<join.rows, kThreads, 0, stream>>>(join);
  return CheckLaunch("join rows");
}

}  // namespace megatrain
