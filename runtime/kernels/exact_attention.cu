#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "absl/status/status.h"
#include "runtime/base/status_macros.h"
#include "runtime/kernels/attention_tile.cuh"
#include "runtime/kernels/cuda_status.h"
#include "runtime/kernels/exact_attention.h"

// A block works on one tile of rows of one head and walks over the tiles of the other side: queries
// over keys, and for the gradients of keys and values keys over queries. A tile holds rows of one
// document alone; what a row does not see gets a weight of exactly zero.
namespace megatrain {
namespace {

struct Arguments {
  const void* qkv;
  void* out;
  float* log_sum_exp;
  const float* sinks;  // null: none
  const void* out_gradient;
  void* qkv_gradient;
  float* row_dots;  // [t, heads]: out . out_gradient
  const AttentionTile* tiles;
  int64_t tokens;
  int heads;
  int kv_heads;
  int head_dim;
  int window;
  float scale;

  __host__ __device__ int64_t QkvStride() const {
    return (int64_t{heads} + 2 * kv_heads) * head_dim;
  }
  __host__ __device__ int64_t OutStride() const { return int64_t{heads} * head_dim; }
  __device__ int64_t QueryColumn(int head) const { return int64_t{head} * head_dim; }
  __device__ int64_t KeyColumn(int kv_head) const { return QueryColumn(heads + kv_head); }
  __device__ int64_t ValueColumn(int kv_head) const { return KeyColumn(kv_heads + kv_head); }
  __device__ bool Sees(int query, int key) const {
    return key <= query && (window == 0 || query - key < window);
  }
};

// The first key tile that a row of the query tile sees.
template <int kWidth>
__device__ int FirstKey(const Arguments& arguments, const AttentionTile& tile) {
  constexpr int kRows = Geometry<kWidth>::kRows;
  const int before = arguments.window == 0 ? tile.begin : arguments.window - 1;
  const int earliest = max(tile.document_begin, tile.begin - before);
  return tile.document_begin + (earliest - tile.document_begin) / kRows * kRows;
}

// The end of the queries that see a row of the key tile.
template <int kWidth>
__device__ int EndQuery(const Arguments& arguments, const AttentionTile& tile) {
  if (arguments.window == 0) {
    return tile.document_end;
  }
  const int64_t end = int64_t{tile.begin} + Geometry<kWidth>::kRows + arguments.window - 1;
  return static_cast<int>(min(int64_t{tile.document_end}, end));
}

// Softmax of a query tile's rows, key tile by key tile. `peak`: the largest score so far; `sum`:
// of exp(score - peak).
template <int kWidth>
struct RunningSoftmax {
  using G = Geometry<kWidth>;
  float peak[G::kOwnRows];
  float sum[G::kOwnRows];

  __device__ void Start(bool has_sink, float sink) {
#pragma unroll
    for (int i = 0; i < G::kOwnRows; ++i) {
      peak[i] = has_sink ? sink : -INFINITY;
      sum[i] = has_sink ? 1.0f : 0.0f;
    }
  }

  // Turns scores into weights relative to the new peak, and rescales what was summed before.
  __device__ void Add(const Arguments& arguments, int query_begin, int key_begin,
                      typename G::Scores& scores, typename G::Sums& sums) {
#pragma unroll
    for (int i = 0; i < G::kOwnRows; ++i) {
      const int query = query_begin + ThreadY() * G::kOwnRows + i;
      float highest = -INFINITY;
#pragma unroll
      for (int j = 0; j < G::kOwnRows; ++j) {
        const bool sees = arguments.Sees(query, key_begin + ThreadX() + kSide * j);
        scores[i][j] = sees ? scores[i][j] * arguments.scale : -INFINITY;
        highest = fmaxf(highest, scores[i][j]);
      }
      highest = fmaxf(peak[i], RowMax(highest));
      const float base = highest == -INFINITY ? 0.0f : highest;  // nothing was seen so far
      const float correction = expf(peak[i] - base);
      peak[i] = highest;
      float added = 0;
#pragma unroll
      for (int j = 0; j < G::kOwnRows; ++j) {
        scores[i][j] = expf(scores[i][j] - base);
        added += scores[i][j];
      }
      sum[i] = sum[i] * correction + RowSum(added);
#pragma unroll
      for (int g = 0; g < G::kGroups; ++g) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          sums[i][g][e] *= correction;
        }
      }
    }
  }
};

template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads, kWidth <= 128 ? 2 : 1)
    ForwardKernel(const Arguments arguments) {
  using G = Geometry<kWidth>;
  extern __shared__ float4 shared[];
  float* queries = reinterpret_cast<float*>(shared);
  float* keys = queries + G::kTileFloats;  // and then the values
  float* weights = keys + G::kTileFloats;
  const AttentionTile tile = arguments.tiles[blockIdx.x];
  if (tile.begin >= tile.document_end) {
    return;
  }
  const int head = blockIdx.y;
  const int kv_head = head / (arguments.heads / arguments.kv_heads);
  const T* qkv = static_cast<const T*>(arguments.qkv);
  const auto load = [&](int64_t column, int begin, float* target) {
    LoadTile<T, kWidth>(qkv + column, arguments.QkvStride(), begin, tile.document_end,
                        arguments.head_dim, target);
  };
  load(arguments.QueryColumn(head), tile.begin, queries);
  RunningSoftmax<kWidth> softmax;
  const bool has_sink = arguments.sinks != nullptr;
  softmax.Start(has_sink, has_sink ? arguments.sinks[head] : 0.0f);
  typename G::Sums sums = {};
  for (int key = FirstKey<kWidth>(arguments, tile); key <= tile.begin; key += G::kRows) {
    __syncthreads();  // the last round's readers are done
    load(arguments.KeyColumn(kv_head), key, keys);
    __syncthreads();
    typename G::Scores scores;
    RowDots<kWidth>(queries, keys, scores);
    softmax.Add(arguments, tile.begin, key, scores, sums);
    StoreScores<kWidth>(scores, weights);
    __syncthreads();  // the keys are read, the weights written
    load(arguments.ValueColumn(kv_head), key, keys);
    __syncthreads();
    AddWeighted<kWidth>(weights, keys, sums);
  }
  T* out = static_cast<T*>(arguments.out) + arguments.QueryColumn(head);
#pragma unroll
  for (int i = 0; i < G::kOwnRows; ++i) {
    const int64_t row = tile.begin + ThreadY() * G::kOwnRows + i;
    if (row < tile.document_end) {
      StoreRow<T, kWidth>(sums[i], 1.0f / softmax.sum[i], arguments.head_dim,
                          out + row * arguments.OutStride());
      if (ThreadX() == 0) {
        arguments.log_sum_exp[row * arguments.heads + head] =
            softmax.peak[i] + logf(softmax.sum[i]);
      }
    }
  }
}

// Of every token and head, one warp each.
template <typename T>
__global__ void __launch_bounds__(kThreads) RowDotKernel(const Arguments arguments) {
  const int64_t index = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / 32;
  if (index >= arguments.tokens * arguments.heads) {
    return;
  }
  const int column = threadIdx.x % 32 * 8;
  float dot = 0;
  if (column < arguments.head_dim) {
    const int64_t at = index * arguments.head_dim + column;
    alignas(16) float out[8];
    alignas(16) float gradient[8];
    Load8(static_cast<const T*>(arguments.out) + at, out);
    Load8(static_cast<const T*>(arguments.out_gradient) + at, gradient);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      dot = fmaf(out[i], gradient[i], dot);
    }
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    dot += __shfl_xor_sync(0xffffffffu, dot, step);
  }
  if (column == 0) {
    arguments.row_dots[index] = dot;
  }
}

// One block a head: d loss / d sink = -sum over tokens of the sink's weight times the row's dot.
__global__ void __launch_bounds__(kThreads)
    SinkGradientKernel(const Arguments arguments, float* sink_gradient) {
  __shared__ float parts[kThreads];
  const int head = blockIdx.x;
  float sum = 0;
  for (int64_t token = threadIdx.x; token < arguments.tokens; token += kThreads) {
    const int64_t at = token * arguments.heads + head;
    const float weight = expf(arguments.sinks[head] - arguments.log_sum_exp[at]);
    sum = fmaf(-weight, arguments.row_dots[at], sum);
  }
  parts[threadIdx.x] = sum;
  for (int step = kThreads / 2; step > 0; step /= 2) {
    __syncthreads();
    if (threadIdx.x < step) {
      parts[threadIdx.x] += parts[threadIdx.x + step];
    }
  }
  if (threadIdx.x == 0) {
    sink_gradient[head] += parts[0];
  }
}

// d loss / d score of one pair, without the scale.
__device__ float ScoreGradient(float weight, float weight_gradient, float row_dot) {
  return weight * (weight_gradient - row_dot);
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads, kWidth <= 64 ? 2 : 1)
    QueryGradientKernel(const Arguments arguments) {
  using G = Geometry<kWidth>;
  extern __shared__ float4 shared[];
  float* queries = reinterpret_cast<float*>(shared);
  float* gradients = queries + G::kTileFloats;
  float* keys = gradients + G::kTileFloats;  // and before them the values
  float* weights = keys + G::kTileFloats;
  const AttentionTile tile = arguments.tiles[blockIdx.x];
  if (tile.begin >= tile.document_end) {
    return;
  }
  const int head = blockIdx.y;
  const int kv_head = head / (arguments.heads / arguments.kv_heads);
  const int own_row = tile.begin + ThreadY() * G::kOwnRows;
  const auto load = [&](const void* base, int64_t stride, int64_t column, int begin,
                        float* target) {
    LoadTile<T, kWidth>(static_cast<const T*>(base) + column, stride, begin, tile.document_end,
                        arguments.head_dim, target);
  };
  load(arguments.qkv, arguments.QkvStride(), arguments.QueryColumn(head), tile.begin, queries);
  load(arguments.out_gradient, arguments.OutStride(), arguments.QueryColumn(head), tile.begin,
       gradients);
  float log_sum_exp[G::kOwnRows] = {};
  float row_dot[G::kOwnRows] = {};
#pragma unroll
  for (int i = 0; i < G::kOwnRows; ++i) {
    if (own_row + i < tile.document_end) {
      const int64_t at = int64_t{own_row + i} * arguments.heads + head;
      log_sum_exp[i] = arguments.log_sum_exp[at];
      row_dot[i] = arguments.row_dots[at];
    }
  }
  typename G::Sums sums = {};
  for (int key = FirstKey<kWidth>(arguments, tile); key <= tile.begin; key += G::kRows) {
    __syncthreads();  // the last round's readers are done
    load(arguments.qkv, arguments.QkvStride(), arguments.ValueColumn(kv_head), key, keys);
    __syncthreads();
    typename G::Scores weight_gradients;
    RowDots<kWidth>(gradients, keys, weight_gradients);
    __syncthreads();
    load(arguments.qkv, arguments.QkvStride(), arguments.KeyColumn(kv_head), key, keys);
    __syncthreads();
    typename G::Scores scores;
    RowDots<kWidth>(queries, keys, scores);
#pragma unroll
    for (int i = 0; i < G::kOwnRows; ++i) {
#pragma unroll
      for (int j = 0; j < G::kOwnRows; ++j) {
        const bool sees = arguments.Sees(own_row + i, key + ThreadX() + kSide * j);
        const float weight = expf(scores[i][j] * arguments.scale - log_sum_exp[i]);
        scores[i][j] = sees ? ScoreGradient(weight, weight_gradients[i][j], row_dot[i]) : 0.0f;
      }
    }
    StoreScores<kWidth>(scores, weights);
    __syncthreads();
    AddWeighted<kWidth>(weights, keys, sums);
  }
  T* target = static_cast<T*>(arguments.qkv_gradient) + arguments.QueryColumn(head);
#pragma unroll
  for (int i = 0; i < G::kOwnRows; ++i) {
    if (own_row + i < tile.document_end) {
      StoreRow<T, kWidth>(sums[i], arguments.scale, arguments.head_dim,
                          target + (own_row + i) * arguments.QkvStride());
    }
  }
}

// A tile of keys and values of one kv head, against all query tiles of the heads that share it.
template <typename T, int kWidth>
struct KeyGradient {
  using G = Geometry<kWidth>;
  const Arguments& arguments;
  const AttentionTile tile;
  float* keys;
  float* values;
  float* queries;
  float* gradients;
  float* weights;        // [key][query]
  float* score_factors;  // [key][query]

  __device__ KeyGradient(const Arguments& arguments, const AttentionTile& tile, float* shared)
      : arguments(arguments),
        tile(tile),
        keys(shared),
        values(keys + G::kTileFloats),
        queries(values + G::kTileFloats),
        gradients(queries + G::kTileFloats),
        weights(gradients + G::kTileFloats),
        score_factors(weights + G::kScoreFloats) {}

  __device__ void Load(const void* base, int64_t stride, int64_t column, int begin,
                       float* target) const {
    LoadTile<T, kWidth>(static_cast<const T*>(base) + column, stride, begin, tile.document_end,
                        arguments.head_dim, target);
  }

  // What the pairs of this key tile and a query tile weigh, forward and backward.
  __device__ void Weigh(int head, int query_begin) const {
    typename G::Scores scores;
    typename G::Scores weight_gradients;
    RowDots<kWidth>(keys, queries, scores);
    RowDots<kWidth>(values, gradients, weight_gradients);
    const int own_key = tile.begin + ThreadY() * G::kOwnRows;
#pragma unroll
    for (int j = 0; j < G::kOwnRows; ++j) {
      const int query = query_begin + ThreadX() + kSide * j;
      const bool exists = query < tile.document_end;
      const int64_t at = int64_t{query} * arguments.heads + head;
      const float log_sum_exp = exists ? arguments.log_sum_exp[at] : 0.0f;
      const float row_dot = exists ? arguments.row_dots[at] : 0.0f;
#pragma unroll
      for (int i = 0; i < G::kOwnRows; ++i) {
        const bool sees = exists && arguments.Sees(query, own_key + i);
        const float weight = sees ? expf(scores[i][j] * arguments.scale - log_sum_exp) : 0.0f;
        scores[i][j] = weight;
        weight_gradients[i][j] =
            sees ? ScoreGradient(weight, weight_gradients[i][j], row_dot) : 0.0f;
      }
    }
    StoreScores<kWidth>(scores, weights);
    StoreScores<kWidth>(weight_gradients, score_factors);
  }

  __device__ void Store(const typename G::Sums& sums, float factor, int64_t column) const {
    T* target = static_cast<T*>(arguments.qkv_gradient) + column;
#pragma unroll
    for (int i = 0; i < G::kOwnRows; ++i) {
      const int64_t row = tile.begin + ThreadY() * G::kOwnRows + i;
      if (row < tile.document_end) {
        StoreRow<T, kWidth>(sums[i], factor, arguments.head_dim,
                            target + row * arguments.QkvStride());
      }
    }
  }
};

template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads, 1) KeyGradientKernel(const Arguments arguments) {
  using G = Geometry<kWidth>;
  extern __shared__ float4 shared[];
  const AttentionTile tile = arguments.tiles[blockIdx.x];
  if (tile.begin >= tile.document_end) {
    return;
  }
  const KeyGradient<T, kWidth> work(arguments, tile, reinterpret_cast<float*>(shared));
  const int kv_head = blockIdx.y;
  const int64_t qkv_stride = arguments.QkvStride();
  work.Load(arguments.qkv, qkv_stride, arguments.KeyColumn(kv_head), tile.begin, work.keys);
  work.Load(arguments.qkv, qkv_stride, arguments.ValueColumn(kv_head), tile.begin, work.values);
  typename G::Sums key_sums = {};
  typename G::Sums value_sums = {};
  const int group = arguments.heads / arguments.kv_heads;
  const int end = EndQuery<kWidth>(arguments, tile);
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const int64_t column = arguments.QueryColumn(head);
    for (int query = tile.begin; query < end; query += G::kRows) {
      __syncthreads();  // the last round's readers are done
      work.Load(arguments.qkv, qkv_stride, column, query, work.queries);
      work.Load(arguments.out_gradient, arguments.OutStride(), column, query, work.gradients);
      __syncthreads();
      work.Weigh(head, query);
      __syncthreads();
      AddWeighted<kWidth>(work.weights, work.gradients, value_sums);
      AddWeighted<kWidth>(work.score_factors, work.queries, key_sums);
    }
  }
  work.Store(key_sums, arguments.scale, arguments.KeyColumn(kv_head));
  work.Store(value_sums, 1.0f, arguments.ValueColumn(kv_head));
}

// `kernel` with more shared memory than a launch has without being asked.
absl::Status Launch(void (*kernel)(Arguments), dim3 grid, int shared_floats,
                    const Arguments& arguments, cudaStream_t stream, const char* name) {
  const int shared_bytes = shared_floats * static_cast<int>(sizeof(float));
  MT_RETURN_IF_ERROR(CudaStatus(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
      name));
  kernel<<<grid, kThreads, shared_bytes, stream>>>(arguments);
  return CheckLaunch(name);
}

template <typename T, int kWidth>
absl::Status LaunchForward(const Arguments& arguments, int64_t tiles, cudaStream_t stream) {
  using G = Geometry<kWidth>;
  return Launch(ForwardKernel<T, kWidth>, dim3(tiles, arguments.heads),
                2 * G::kTileFloats + G::kScoreFloats, arguments, stream, "attention forward");
}

template <typename T, int kWidth>
absl::Status LaunchBackward(const Arguments& arguments, int64_t tiles, cudaStream_t stream) {
  using G = Geometry<kWidth>;
  const int64_t warps = arguments.tokens * arguments.heads;
  RowDotKernel<T><<<(warps * 32 + kThreads - 1) / kThreads, kThreads, 0, stream>>>(arguments);
  MT_RETURN_IF_ERROR(CheckLaunch("attention row dots"));
  MT_RETURN_IF_ERROR(Launch(QueryGradientKernel<T, kWidth>, dim3(tiles, arguments.heads),
                            3 * G::kTileFloats + G::kScoreFloats, arguments, stream,
                            "attention query gradient"));
  return Launch(KeyGradientKernel<T, kWidth>, dim3(tiles, arguments.kv_heads),
                4 * G::kTileFloats + 2 * G::kScoreFloats, arguments, stream,
                "attention key and value gradient");
}

// run.operator()<T, kWidth>() for the shape's dtype and head.
template <typename Run>
absl::Status Dispatch(const AttentionShape& shape, const Run& run) {
  const auto by_width = [&]<typename T>() {
    if (shape.head_dim <= 64) {
      return run.template operator()<T, 64>();
    }
    return shape.head_dim <= 128 ? run.template operator()<T, 128>()
                                 : run.template operator()<T, 256>();
  };
  return shape.dtype == ComputeDtype::kFloat32 ? by_width.template operator()<float>()
                                               : by_width.template operator()<__nv_bfloat16>();
}

Arguments ArgumentsOf(const AttentionShape& shape, const AttentionTensors& tensors,
                      const AttentionBatch& batch, const AttentionTables& tables, void* scratch) {
  return {.qkv = tensors.qkv,
          .out = tensors.out,
          .log_sum_exp = tensors.log_sum_exp,
          .sinks = shape.sinks ? tensors.sinks : nullptr,
          .out_gradient = tensors.out_gradient,
          .qkv_gradient = tensors.qkv_gradient,
          .row_dots = static_cast<float*>(scratch),
          .tiles = reinterpret_cast<const AttentionTile*>(static_cast<const char*>(batch.tables) +
                                                          tables.tile_table),
          .tokens = batch.counts.tokens,
          .heads = shape.heads,
          .kv_heads = shape.kv_heads,
          .head_dim = shape.head_dim,
          .window = shape.window,
          .scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim))};
}

}  // namespace

absl::Status ExactAttention::Forward(const AttentionTensors& tensors, const AttentionBatch& batch,
                                     const AttentionContext& context) {
  const AttentionTables tables =
      AttentionTablesOf(shape_, batch.counts.tokens, batch.counts.documents);
  const Arguments arguments = ArgumentsOf(shape_, tensors, batch, tables, context.scratch);
  return Dispatch(shape_, [&]<typename T, int kWidth>() {
    return LaunchForward<T, kWidth>(arguments, tables.tiles, context.stream);
  });
}

absl::Status ExactAttention::Backward(const AttentionTensors& tensors, const AttentionBatch& batch,
                                      const AttentionContext& context) {
  const AttentionTables tables =
      AttentionTablesOf(shape_, batch.counts.tokens, batch.counts.documents);
  const Arguments arguments = ArgumentsOf(shape_, tensors, batch, tables, context.scratch);
  MT_RETURN_IF_ERROR(Dispatch(shape_, [&]<typename T, int kWidth>() {
    return LaunchBackward<T, kWidth>(arguments, tables.tiles, context.stream);
  }));
  if (!shape_.sinks) {
    return absl::OkStatus();
  }
  SinkGradientKernel<<<shape_.heads, kThreads, 0, context.stream>>>(arguments,
                                                                    tensors.sink_gradient);
  return CheckLaunch("attention sink gradient");
}

}  // namespace megatrain
