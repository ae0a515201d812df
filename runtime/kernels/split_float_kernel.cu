#include "runtime/kernels/cuda_status.h"
#include "runtime/kernels/split_float_kernel.h"
#include "runtime/kernels/vector.cuh"

namespace megatrain {
namespace {

constexpr int kThreads = 256;
constexpr int kMaxPack = 8;

__device__ float Join(uint16_t hi, int16_t lo) {
  return __uint_as_float((uint32_t{hi} << 16) + static_cast<uint32_t>(static_cast<int32_t>(lo)));
}

// A pack a thread; the last thread takes what is left behind the last pack.
template <int kPack>
__global__ void __launch_bounds__(kThreads)
    JoinFloats(const uint16_t* hi, const int16_t* lo, float* weights, int64_t count) {
  const int64_t at = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kPack;
  if (at + kPack <= count) {
    const Pack<uint16_t, kPack> upper = LoadPack<kPack>(hi + at);
    const Pack<int16_t, kPack> rest = LoadPack<kPack>(lo + at);
    Pack<float, kPack> joined;
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      joined.values[i] = Join(upper.values[i], rest.values[i]);
    }
    StorePack(weights + at, joined);
    return;
  }
  for (int64_t i = at; i < count; ++i) {
    weights[i] = Join(hi[i], lo[i]);
  }
}

template <int kPack>
void Launch(const uint16_t* hi, const int16_t* lo, float* weights, int64_t count,
            cudaStream_t stream) {
  JoinFloats<kPack><<<CeilDivide(count, int64_t{kThreads} * kPack), kThreads, 0, stream>>>(
      hi, lo, weights, count);
}

}  // namespace

absl::Status LaunchJoinFloats(const uint16_t* hi, const int16_t* lo, float* weights, int64_t count,
                              cudaStream_t stream) {
  if (count == 0) {
    return absl::OkStatus();
  }
  const bool aligned = reinterpret_cast<uintptr_t>(lo) % 16 == 0;
  (aligned ? Launch<kMaxPack> : Launch<1>)(hi, lo, weights, count, stream);
  return CheckLaunch("join floats");
}

}  // namespace megatrain
