// Blocks of 16 x 16 threads over tiles of attention: rows of one head in shared memory, as floats.
// Both products that attention is made of run from there into registers: RowDots (scores) and
// AddWeighted (sums of rows by scores). All sums are in a fixed order.

#ifndef RUNTIME_KERNELS_ATTENTION_TILE_CUH_
#define RUNTIME_KERNELS_ATTENTION_TILE_CUH_

#include <cuda_bf16.h>

#include <cstdint>

namespace megatrain {

inline constexpr int kThreads = 256;
inline constexpr int kSide = 16;  // threads along the rows, and along the columns, of a tile

// kWidth: the head's columns in shared memory, head_dim rounded up and filled with zeros.
template <int kWidth>
struct Geometry {
  static constexpr int kRows = kWidth <= 128 ? 64 : 32;  // AttentionTileRows
  // Four floats apart modulo the banks: eight rows are read at once without a conflict.
  static constexpr int kStride = kWidth + 4;
  static constexpr int kScoreStride = kRows + 4;
  static constexpr int kTileFloats = kRows * kStride;
  static constexpr int kScoreFloats = kRows * kScoreStride;
  // One thread's share. Scores: rows kOwnRows y + i, columns x + 16 j. Sums: the same rows,
  // columns 64 g + 4 x + e.
  static constexpr int kOwnRows = kRows / kSide;
  static constexpr int kGroups = kWidth / (4 * kSide);

  using Scores = float[kOwnRows][kOwnRows];
  using Sums = float[kOwnRows][kGroups][4];
};

__device__ inline int ThreadX() { return threadIdx.x % kSide; }
__device__ inline int ThreadY() { return threadIdx.x / kSide; }

__device__ inline void Load8(const float* source, float (&values)[8]) {
  *reinterpret_cast<float4*>(&values[0]) = reinterpret_cast<const float4*>(source)[0];
  *reinterpret_cast<float4*>(&values[4]) = reinterpret_cast<const float4*>(source)[1];
}

__device__ inline void Load8(const __nv_bfloat16* source, float (&values)[8]) {
  const uint4 bits = *reinterpret_cast<const uint4*>(source);
  const uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    values[2 * i] = __uint_as_float(words[i] << 16);
    values[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
  }
}

__device__ inline void Store4(float* target, const float (&values)[4], float factor) {
  *reinterpret_cast<float4*>(target) =
      make_float4(values[0] * factor, values[1] * factor, values[2] * factor, values[3] * factor);
}

__device__ inline void Store4(__nv_bfloat16* target, const float (&values)[4], float factor) {
  __nv_bfloat162 pairs[2] = {__floats2bfloat162_rn(values[0] * factor, values[1] * factor),
                             __floats2bfloat162_rn(values[2] * factor, values[3] * factor)};
  *reinterpret_cast<uint2*>(target) = *reinterpret_cast<const uint2*>(pairs);
}

// Rows [begin, begin + kRows) of one head; zeros from row `end` and from column head_dim on.
template <typename T, int kWidth>
__device__ void LoadTile(const T* head, int64_t row_stride, int begin, int end, int head_dim,
                         float* tile) {
  using G = Geometry<kWidth>;
  constexpr int kChunks = kWidth / 8;
#pragma unroll 4
  for (int i = threadIdx.x; i < G::kRows * kChunks; i += kThreads) {
    const int row = i / kChunks;
    const int column = i % kChunks * 8;
    alignas(16) float values[8] = {};
    if (begin + row < end && column < head_dim) {
      Load8(head + (begin + row) * row_stride + column, values);
    }
    float4* target = reinterpret_cast<float4*>(tile + row * G::kStride + column);
    target[0] = make_float4(values[0], values[1], values[2], values[3]);
    target[1] = make_float4(values[4], values[5], values[6], values[7]);
  }
}

// The thread's rows times the thread's columns: scores[i][j] = a[own row i] . b[x + 16 j].
template <int kWidth>
__device__ void RowDots(const float* a, const float* b, typename Geometry<kWidth>::Scores& scores) {
  using G = Geometry<kWidth>;
  constexpr int kOwned = G::kOwnRows;
#pragma unroll
  for (int i = 0; i < kOwned; ++i) {
#pragma unroll
    for (int j = 0; j < kOwned; ++j) {
      scores[i][j] = 0;
    }
  }
  const float* a_rows = a + ThreadY() * kOwned * G::kStride;
  const float* b_rows = b + ThreadX() * G::kStride;
#pragma unroll 4
  for (int c = 0; c < kWidth; c += 4) {
    float4 x[kOwned];
    float4 y[kOwned];
#pragma unroll
    for (int i = 0; i < kOwned; ++i) {
      x[i] = *reinterpret_cast<const float4*>(a_rows + i * G::kStride + c);
      y[i] = *reinterpret_cast<const float4*>(b_rows + i * kSide * G::kStride + c);
    }
#pragma unroll
    for (int i = 0; i < kOwned; ++i) {
#pragma unroll
      for (int j = 0; j < kOwned; ++j) {
        scores[i][j] = fmaf(x[i].x, y[j].x, scores[i][j]);
        scores[i][j] = fmaf(x[i].y, y[j].y, scores[i][j]);
        scores[i][j] = fmaf(x[i].z, y[j].z, scores[i][j]);
        scores[i][j] = fmaf(x[i].w, y[j].w, scores[i][j]);
      }
    }
  }
}

// sums[own row] += weights[own row] b, over all rows of b.
template <int kWidth>
__device__ void AddWeighted(const float* weights, const float* b,
                            typename Geometry<kWidth>::Sums& sums) {
  using G = Geometry<kWidth>;
  const float* rows = weights + ThreadY() * G::kOwnRows * G::kScoreStride;
  const float* columns = b + 4 * ThreadX();
#pragma unroll 2
  for (int k = 0; k < G::kRows; k += 4) {
    alignas(16) float w[G::kOwnRows][4];
#pragma unroll
    for (int i = 0; i < G::kOwnRows; ++i) {
      *reinterpret_cast<float4*>(w[i]) =
          *reinterpret_cast<const float4*>(rows + i * G::kScoreStride + k);
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) {
#pragma unroll
      for (int g = 0; g < G::kGroups; ++g) {
        const float4 y = *reinterpret_cast<const float4*>(columns + (k + e) * G::kStride + 64 * g);
#pragma unroll
        for (int i = 0; i < G::kOwnRows; ++i) {
          sums[i][g][0] = fmaf(w[i][e], y.x, sums[i][g][0]);
          sums[i][g][1] = fmaf(w[i][e], y.y, sums[i][g][1]);
          sums[i][g][2] = fmaf(w[i][e], y.z, sums[i][g][2]);
          sums[i][g][3] = fmaf(w[i][e], y.w, sums[i][g][3]);
        }
      }
    }
  }
}

template <int kWidth>
__device__ void StoreScores(const typename Geometry<kWidth>::Scores& scores, float* weights) {
  using G = Geometry<kWidth>;
#pragma unroll
  for (int i = 0; i < G::kOwnRows; ++i) {
#pragma unroll
    for (int j = 0; j < G::kOwnRows; ++j) {
      weights[(ThreadY() * G::kOwnRows + i) * G::kScoreStride + ThreadX() + kSide * j] =
          scores[i][j];
    }
  }
}

// The thread's row i of its sums, times `factor`, into a row of a head.
template <typename T, int kWidth>
__device__ void StoreRow(const float (&sums)[Geometry<kWidth>::kGroups][4], float factor,
                         int head_dim, T* row) {
#pragma unroll
  for (int g = 0; g < Geometry<kWidth>::kGroups; ++g) {
    const int column = 64 * g + 4 * ThreadX();
    if (column < head_dim) {
      Store4(row + column, sums[g], factor);
    }
  }
}

// Over the 16 threads that share their rows; all of them get the result.
__device__ inline float RowMax(float value) {
#pragma unroll
  for (int step = kSide / 2; step > 0; step /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, step));
  }
  return value;
}

__device__ inline float RowSum(float value) {
#pragma unroll
  for (int step = kSide / 2; step > 0; step /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, step);
  }
  return value;
}

}  // namespace megatrain

#endif  // RUNTIME_KERNELS_ATTENTION_TILE_CUH_
