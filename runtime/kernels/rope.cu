#include "runtime/kernels/cuda_status.h"
#include "runtime/kernels/numbers.cuh"
#include "runtime/kernels/rope.h"

namespace megatrain {
namespace {

constexpr int kHeadsPerThread = 4;
constexpr int kMaxThreads = 256;

enum class Direction { kForward, kBackward };

// Turns `N` channel pairs of the heads slot, slot + slots, ... of one token.
template <typename T, int N>
__device__ void TurnHeads(const Rotation& rotation, T* pairs, const Pack<float2, N>& angles,
                          int slot, int slots) {
  const int half = rotation.head_dim / 2;
  Numbers<T, N> first[kHeadsPerThread], second[kHeadsPerThread];
#pragma unroll
  for (int i = 0; i < kHeadsPerThread; ++i) {
    const int head = slot + i * slots;
    if (head < rotation.head_count) {
      first[i] = LoadNumbers<N>(pairs + head * rotation.head_dim);
      second[i] = LoadNumbers<N>(pairs + head * rotation.head_dim + half);
    }
  }
#pragma unroll
  for (int i = 0; i < kHeadsPerThread; ++i) {
    const int head = slot + i * slots;
    if (head < rotation.head_count) {
      float turned_first[N], turned_second[N];
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const auto [cosine, sine] = angles.values[j];
        turned_first[j] = first[i][j] * cosine - second[i][j] * sine;
        turned_second[j] = second[i][j] * cosine + first[i][j] * sine;
      }
      StoreFloats(pairs + head * rotation.head_dim, turned_first);
      StoreFloats(pairs + head * rotation.head_dim + half, turned_second);
    }
  }
}

// One block a token, from the last: what was written last before is the likeliest to be in the
// cache.
template <typename T, int N>
__global__ void __launch_bounds__(kMaxThreads, 2)
    RotateKernel(Rotation rotation, Direction direction) {
  const int half = rotation.head_dim / 2;
  const int columns = half / N;
  const int slots = (rotation.head_count + kHeadsPerThread - 1) / kHeadsPerThread;
  const int64_t token = gridDim.x - 1 - blockIdx.x;
  T* row = static_cast<T*>(rotation.heads) + token * rotation.row_stride;
  const float2* table = rotation.table + int64_t{rotation.positions[token]} * half;
  for (int task = threadIdx.x; task < columns * slots; task += blockDim.x) {
    const int column = task % columns * N;
    auto angles = LoadPack<N>(table + column);
    if (direction == Direction::kBackward) {
      for (float2& angle : angles.values) {
        angle.y = -angle.y;
      }
    }
    TurnHeads<T, N>(rotation, row + column, angles, task / columns, slots);
  }
}

absl::Status Launch(const Rotation& rotation, Direction direction, cudaStream_t stream) {
  if (rotation.tokens == 0) {
    return absl::OkStatus();
  }
  const int64_t half = rotation.head_dim / 2;
  const int64_t slots = CeilDivide(rotation.head_count, kHeadsPerThread);
  DispatchPacks(rotation.dtype, {half, rotation.row_stride},
                [&]<typename T, int N>(PackType<T, N>) {
                  const int threads = ThreadsFor(half / N * slots, 1, kMaxThreads);
                  RotateKernel<T, N><<<rotation.tokens, threads, 0, stream>>>(rotation, direction);
                });
  return CheckLaunch("Rotate");
}

}  // namespace

absl::Status LaunchRotateForward(const Rotation& rotation, cudaStream_t stream) {
  return Launch(rotation, Direction::kForward, stream);
}

absl::Status LaunchRotateBackward(const Rotation& rotation, cudaStream_t stream) {
  return Launch(rotation, Direction::kBackward, stream);
}

}  // namespace megatrain
