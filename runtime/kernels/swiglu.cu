#include "runtime/kernels/cuda_status.h"
#include "runtime/kernels/numbers.cuh"
#include "runtime/kernels/swiglu.h"

namespace megatrain {
namespace {

constexpr int kThreads = 128;
constexpr int kPacksPerThread = 2;
constexpr int kTilePacks = kThreads * kPacksPerThread;

__device__ float Sigmoid(float x) { return __fdividef(1.f, 1.f + expf(-x)); }

// One formula for both directions, so that both give the same bits.
__device__ float Activated(float gate, float sigmoid, float up) { return gate * sigmoid * up; }

// A block's tile: kTilePacks packs of one row. The first blocks take the last tiles: what was
// written last before is the likeliest to be in the cache.
template <typename T, int N>
struct Tile {
  int64_t row;
  int first_pack;  // this thread's
  int pack_count;  // of the row

  __device__ Tile(int64_t width, int tiles_per_row)
      : row((gridDim.x - 1 - blockIdx.x) / tiles_per_row),
        first_pack((gridDim.x - 1 - blockIdx.x) % tiles_per_row * kTilePacks + threadIdx.x),
        pack_count(width / N) {}
};

template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    ForwardKernel(const T* __restrict__ gate_up, T* __restrict__ activated, int64_t width,
                  int tiles_per_row) {
  const Tile<T, N> tile(width, tiles_per_row);
  const T* gate = gate_up + tile.row * 2 * width;
#pragma unroll
  for (int i = 0; i < kPacksPerThread; ++i) {
    const int pack = tile.first_pack + i * kThreads;
    if (pack < tile.pack_count) {
      const auto gates = LoadNumbers<N>(gate + pack * N);
      const auto ups = LoadNumbers<N>(gate + width + pack * N);
      float result[N];
#pragma unroll
      for (int j = 0; j < N; ++j) {
        result[j] = Activated(gates[j], Sigmoid(gates[j]), ups[j]);
      }
      StoreFloats(activated + tile.row * width + pack * N, result);
    }
  }
}

// With s = sigmoid(gate) and d = d loss / d activated:
// d up = d gate s; d gate = d up s (1 + gate (1 - s)).
template <typename T, int N, bool kActivatesAgain>
__global__ void __launch_bounds__(kThreads)
    BackwardKernel(T* gate_up, T* activated_gradient, int64_t width, int tiles_per_row) {
  const Tile<T, N> tile(width, tiles_per_row);
  T* gate = gate_up + tile.row * 2 * width;
  T* up = gate + width;
  T* activated = activated_gradient + tile.row * width;
  Numbers<T, N> gates[kPacksPerThread], ups[kPacksPerThread], gradients[kPacksPerThread];
#pragma unroll
  for (int i = 0; i < kPacksPerThread; ++i) {
    const int pack = tile.first_pack + i * kThreads;
    if (pack < tile.pack_count) {
      gates[i] = LoadNumbers<N>(gate + pack * N);
      ups[i] = LoadNumbers<N>(up + pack * N);
      gradients[i] = LoadNumbers<N>(activated + pack * N);
    }
  }
#pragma unroll
  for (int i = 0; i < kPacksPerThread; ++i) {
    const int pack = tile.first_pack + i * kThreads;
    if (pack < tile.pack_count) {
      float gate_gradient[N], up_gradient[N], activated_again[N];
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float g = gates[i][j];
        const float s = Sigmoid(g);
        gate_gradient[j] = gradients[i][j] * ups[i][j] * s * (1.f + g * (1.f - s));
        up_gradient[j] = gradients[i][j] * (g * s);
        activated_again[j] = Activated(g, s, ups[i][j]);
      }
      StoreFloats(gate + pack * N, gate_gradient);
      StoreFloats(up + pack * N, up_gradient);
      if constexpr (kActivatesAgain) {
        StoreFloats(activated + pack * N, activated_again);
      }
    }
  }
}

template <int N>
int TilesPerRow(int64_t width) {
  return static_cast<int>(CeilDivide(width / N, kTilePacks));
}

}  // namespace

absl::Status LaunchSwigluForward(const void* gate_up, void* activated, int64_t tokens,
                                 int64_t width, ComputeDtype dtype, cudaStream_t stream) {
  if (tokens == 0) {
    return absl::OkStatus();
  }
  DispatchPacks(dtype, {width}, [&]<typename T, int N>(PackType<T, N>) {
    const int tiles = TilesPerRow<N>(width);
    ForwardKernel<T, N><<<tokens * tiles, kThreads, 0, stream>>>(
        static_cast<const T*>(gate_up), static_cast<T*>(activated), width, tiles);
  });
  return CheckLaunch("SwigluForward");
}

absl::Status LaunchSwigluBackward(const SwigluBackward& arguments, cudaStream_t stream) {
  if (arguments.tokens == 0) {
    return absl::OkStatus();
  }
  DispatchPacks(arguments.dtype, {arguments.width}, [&]<typename T, int N>(PackType<T, N>) {
    const int tiles = TilesPerRow<N>(arguments.width);
    const auto kernel =
        arguments.activates_again ? BackwardKernel<T, N, true> : BackwardKernel<T, N, false>;
    kernel<<<arguments.tokens * tiles, kThreads, 0, stream>>>(
        static_cast<T*>(arguments.gate_up), static_cast<T*>(arguments.activated_gradient),
        arguments.width, tiles);
  });
  return CheckLaunch("SwigluBackward");
}

}  // namespace megatrain
