// Numbers of a compute dtype in packs, seen as floats; and the choice of pack for a call.

#ifndef RUNTIME_KERNELS_NUMBERS_CUH_
#define RUNTIME_KERNELS_NUMBERS_CUH_

#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "runtime/kernels/vector.cuh"
#include "runtime/model/layer_template.h"

namespace megatrain {

// N neighbours, T float or __nv_bfloat16. Held as words, so that two bfloat16 share a register.
template <typename T, int N>
struct Numbers {
  static constexpr int kBytes = sizeof(T) * N;
  using Word = std::conditional_t<kBytes == sizeof(uint16_t), uint16_t, uint32_t>;
  Pack<Word, kBytes / sizeof(Word)> words;

  __device__ float operator[](int i) const {
    if constexpr (sizeof(T) == sizeof(float)) {
      return __uint_as_float(words.values[i]);
    } else {
      const uint32_t word = words.values[i / 2];
      return __uint_as_float(i % 2 == 0 ? word << 16 : word & 0xffff0000u);
    }
  }
};

template <int N, typename T>
__device__ Numbers<T, N> LoadNumbers(const T* source) {
  return *reinterpret_cast<const Numbers<T, N>*>(source);
}

template <int N, typename T>
__device__ void StoreNumbers(T* target, const Numbers<T, N>& numbers) {
  *reinterpret_cast<Numbers<T, N>*>(target) = numbers;
}

// Rounds to nearest even.
template <typename T, int N>
__device__ Numbers<T, N> RoundNumbers(const float (&values)[N]) {
  Numbers<T, N> result;
  auto& words = result.words.values;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if constexpr (sizeof(T) == sizeof(float)) {
      words[i] = __float_as_uint(values[i]);
    } else if constexpr (N == 1) {
      words[i] = __bfloat16_as_ushort(__float2bfloat16_rn(values[i]));
    } else if (i % 2 == 0) {
      words[i / 2] = __bfloat16_as_ushort(__float2bfloat16_rn(values[i])) |
                     uint32_t{__bfloat16_as_ushort(__float2bfloat16_rn(values[i + 1]))} << 16;
    }
  }
  return result;
}

template <typename T, int N>
__device__ void StoreFloats(T* target, const float (&values)[N]) {
  StoreNumbers(target, RoundNumbers<T>(values));
}

template <typename T, int N>
struct PackType {};

// launch(PackType<T, N>{}), a void or a status, with the element type of `dtype` and, when
// `elements` (whatever rows, heads and strides must be multiples of) allows it, packs of 16 bytes;
// else N is 1.
template <typename Launch>
auto DispatchPacks(ComputeDtype dtype, std::initializer_list<int64_t> elements, Launch launch) {
  const auto divides = [&](int64_t pack) {
    return std::all_of(elements.begin(), elements.end(),
                       [pack](int64_t count) { return count % pack == 0; });
  };
  if (dtype == ComputeDtype::kFloat32) {
    return divides(4) ? launch(PackType<float, 4>{}) : launch(PackType<float, 1>{});
  }
  return divides(8) ? launch(PackType<__nv_bfloat16, 8>{}) : launch(PackType<__nv_bfloat16, 1>{});
}

}  // namespace megatrain

#endif  // RUNTIME_KERNELS_NUMBERS_CUH_
