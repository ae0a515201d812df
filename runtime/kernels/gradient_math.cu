#include <algorithm>

#include "runtime/kernels/bfloat16_bits.cuh"
#include "runtime/kernels/block_reduce.cuh"
#include "runtime/kernels/cuda_status.h"
#include "runtime/kernels/gradient_math.h"
#include "runtime/kernels/vector.cuh"

namespace megatrain {
namespace {

constexpr int kThreads = 256;
constexpr int kPack = 4;

// A pack a thread; the last thread takes what is left behind the last pack.
__global__ void __launch_bounds__(kThreads)
    AddTo(float* target, const float* source, int64_t count) {
  const int64_t at = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kPack;
  if (at + kPack <= count) {
    Pack<float, kPack> sums = LoadPack<kPack>(target + at);
    const Pack<float, kPack> added = LoadPack<kPack>(source + at);
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      sums.values[i] += added.values[i];
    }
    StorePack(target + at, sums);
    return;
  }
  for (int64_t i = at; i < count; ++i) {
    target[i] += source[i];
  }
}

constexpr int kSumUnroll = 4;

// Ranges whose sums are formed together, and the blocks of each.
struct SumTable {
  ValueRange ranges[kSumsAtOnce];
  int first_blocks[kSumsAtOnce + 1];
};

struct Plus {
  __device__ double operator()(double a, double b) const { return a + b; }
};

// A square of a float is exact in fp64, so that fused and separate operations give the same bits.
__device__ double AddSquares(double sum, const Pack<float, kPack>& pack) {
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    const double value = pack.values[i];
    sum += value * value;
  }
  return sum;
}

// Every thread sums packs a range's blocks apart, in kSumUnroll lanes; then each block's threads
// are summed.
__global__ void __launch_bounds__(kThreads, 2048 / kThreads)
    PartialSumsOfSquares(const float* all_values, const __grid_constant__ SumTable table,
                         double* partials) {
  __shared__ double shared[kMaxWarps];
  int range = 0;
  while (blockIdx.x >= table.first_blocks[range + 1]) {
    ++range;
  }
  const float* values = all_values + table.ranges[range].offset;
  const int64_t count = table.ranges[range].count;
  const int first_block = table.first_blocks[range];
  const int64_t packs = count / kPack;
  const int64_t stride = int64_t{table.first_blocks[range + 1] - first_block} * kThreads;
  const int64_t thread = int64_t{blockIdx.x - first_block} * kThreads + threadIdx.x;
  double lanes[kSumUnroll] = {};
  int64_t pack = thread;
  for (; pack + (kSumUnroll - 1) * stride < packs; pack += kSumUnroll * stride) {
    Pack<float, kPack> loaded[kSumUnroll];
#pragma unroll
    for (int n = 0; n < kSumUnroll; ++n) {
      loaded[n] = LoadPack<kPack>(values + (pack + n * stride) * kPack);
    }
#pragma unroll
    for (int n = 0; n < kSumUnroll; ++n) {
      lanes[n] = AddSquares(lanes[n], loaded[n]);
    }
  }
  for (; pack < packs; pack += stride) {
    lanes[0] = AddSquares(lanes[0], LoadPack<kPack>(values + pack * kPack));
  }
  if (const int64_t rest = packs * kPack + thread; rest < count) {
    const double value = values[rest];
    lanes[1] += value * value;
  }
  const double sum =
      BlockReduce((lanes[0] + lanes[2]) + (lanes[1] + lanes[3]), 0.0, shared, Plus{});
  if (threadIdx.x == 0) {
    partials[blockIdx.x] = sum;
  }
}

// A block a range, a thread a partial sum.
__global__ void __launch_bounds__(kMaxSumPartials)
    SumPartials(const double* partials, const __grid_constant__ SumTable table, double* sums) {
  __shared__ double shared[kMaxWarps];
  const int partial = table.first_blocks[blockIdx.x] + threadIdx.x;
  const double mine = partial < table.first_blocks[blockIdx.x + 1] ? partials[partial] : 0.0;
  const double all = BlockReduce(mine, 0.0, shared, Plus{});
  if (threadIdx.x == 0) {
    sums[blockIdx.x] = all;
  }
}

SumTable MakeSumTable(std::span<const ValueRange> ranges) {
  SumTable table = {};
  for (size_t i = 0; i < ranges.size(); ++i) {
    const int64_t blocks = CeilDivide(ranges[i].count, int64_t{kThreads} * kPack * kSumUnroll);
    table.ranges[i] = ranges[i];
    table.first_blocks[i + 1] =
        table.first_blocks[i] + static_cast<int>(std::clamp<int64_t>(blocks, 1, kMaxSumPartials));
  }
  return table;
}

constexpr int kFirstThreads = 1024;
constexpr int64_t kFirstElements = int64_t{kFirstThreads} * kPack;

// The up to kPack elements of one thread, rounded.
struct Rounded {
  Pack<uint16_t, kPack> bits;
  int count;  // 0: the thread is behind the end
};

__device__ Rounded RoundPack(const float* values, int64_t at, int64_t end) {
  Rounded rounded = {{}, static_cast<int>(max(int64_t{0}, min(int64_t{kPack}, end - at)))};
  if (rounded.count == kPack) {
    const Pack<float, kPack> loaded = LoadPack<kPack>(values + at);
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      rounded.bits.values[i] = RoundToBfloat16Bits(loaded.values[i]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      if (i < rounded.count) {
        rounded.bits.values[i] = RoundToBfloat16Bits(values[at + i]);
      }
    }
  }
  return rounded;
}

__device__ void StoreRounded(uint16_t* target, int64_t at, const Rounded& rounded) {
  if (rounded.count == kPack) {
    StorePack(target + at, rounded.bits);
  } else {
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      if (i < rounded.count) {
        target[at + i] = rounded.bits.values[i];
      }
    }
  }
}

// One block, which reads all before it writes.
__global__ void __launch_bounds__(kFirstThreads) RoundFirst(float* values, int64_t end) {
  const int64_t at = int64_t{threadIdx.x} * kPack;
  const Rounded rounded = RoundPack(values, at, end);
  __syncthreads();
  StoreRounded(reinterpret_cast<uint16_t*>(values), at, rounded);
}

// Elements [begin, end). In place with end <= 2 * begin: they are written to the bytes of
// [begin / 2, begin), which an earlier launch has read.
__global__ void __launch_bounds__(kThreads)
    RoundRange(const float* values, uint16_t* target, int64_t begin, int64_t end) {
  const int64_t at = begin + (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kPack;
  StoreRounded(target, at, RoundPack(values, at, end));
}

template <typename Word>
__device__ bool IsNonFinite(Word bits) {
  constexpr Word kExponent = sizeof(Word) == 2 ? Word{0x7f80} : static_cast<Word>(0x7f800000u);
  return (bits & kExponent) == kExponent;
}

// A warp a row. -1 is the largest number without a sign.
template <typename Word, int kElements>
__global__ void __launch_bounds__(kThreads)
    FindNonFiniteRow(const Word* values, int64_t rows, int64_t width, unsigned int* first_row) {
  constexpr int kRowsPerBlock = kThreads / kWarpThreads;
  const int64_t row = int64_t{blockIdx.x} * kRowsPerBlock + threadIdx.x / kWarpThreads;
  if (row >= rows) {
    return;
  }
  bool found = false;
  for (int64_t at = threadIdx.x % kWarpThreads * kElements; at < width;
       at += kWarpThreads * kElements) {
    const Pack<Word, kElements> pack = LoadPack<kElements>(values + row * width + at);
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      found = found || IsNonFinite(pack.values[i]);
    }
  }
  if (__any_sync(0xffffffffu, found) && threadIdx.x % kWarpThreads == 0) {
    atomicMin(first_row, static_cast<unsigned int>(row));
  }
}

template <typename Word>
absl::Status LaunchFindNonFiniteRowOf(const ValueRows& rows, int32_t* first_row,
                                      cudaStream_t stream) {
  constexpr int kPacked = 16 / sizeof(Word);
  const auto kernel =
      rows.width % kPacked == 0 ? FindNonFiniteRow<Word, kPacked> : FindNonFiniteRow<Word, 1>;
  kernel<<<CeilDivide(rows.rows, kThreads / kWarpThreads), kThreads, 0, stream>>>(
      static_cast<const Word*>(rows.values), rows.rows, rows.width,
      reinterpret_cast<unsigned int*>(first_row));
  return CheckLaunch("find a row that is not finite");
}

}  // namespace

absl::Status LaunchAddTo(float* target, const float* source, int64_t count, cudaStream_t stream) {
  if (count == 0) {
    return absl::OkStatus();
  }
  AddTo<<<CeilDivide(count, kThreads * kPack), kThreads, 0, stream>>>(target, source, count);
  return CheckLaunch("add arrays");
}

absl::Status LaunchSumsOfSquares(const float* values, std::span<const ValueRange> ranges,
                                 double* sums, void* scratch, cudaStream_t stream) {
  auto* partials = static_cast<double*>(scratch);
  while (!ranges.empty()) {
    const auto some = ranges.first(std::min<size_t>(ranges.size(), kSumsAtOnce));
    const SumTable table = MakeSumTable(some);
    PartialSumsOfSquares<<<table.first_blocks[some.size()], kThreads, 0, stream>>>(values, table,
                                                                                   partials);
    SumPartials<<<some.size(), kMaxSumPartials, 0, stream>>>(partials, table, sums);
    ranges = ranges.subspan(some.size());
    sums += some.size();
  }
  return CheckLaunch("sums of squares");
}

absl::Status LaunchRoundToBfloat16InPlace(float* values, int64_t count, cudaStream_t stream) {
  RoundFirst<<<1, kFirstThreads, 0, stream>>>(values, std::min(count, kFirstElements));
  for (int64_t begin = kFirstElements; begin < count; begin *= 2) {
    const int64_t end = std::min(2 * begin, count);
    RoundRange<<<CeilDivide(end - begin, kThreads * kPack), kThreads, 0, stream>>>(
        values, reinterpret_cast<uint16_t*>(values), begin, end);
  }
  return CheckLaunch("round to bf16");
}

absl::Status LaunchRoundToBfloat16(const float* values, uint16_t* rounded, int64_t count,
                                   cudaStream_t stream) {
  if (count == 0) {
    return absl::OkStatus();
  }
  RoundRange<<<CeilDivide(count, kThreads * kPack), kThreads, 0, stream>>>(values, rounded, 0,
                                                                           count);
  return CheckLaunch("round to bf16");
}

absl::Status LaunchFindNonFiniteRow(const ValueRows& rows, int32_t* first_row,
                                    cudaStream_t stream) {
  const cudaError_t cleared = cudaMemsetAsync(first_row, 0xff, sizeof(*first_row), stream);
  if (cleared != cudaSuccess || rows.rows == 0) {
    return CudaStatus(cleared, "clear the row that is not finite");
  }
  return rows.element_bytes == 2 ? LaunchFindNonFiniteRowOf<uint16_t>(rows, first_row, stream)
                                 : LaunchFindNonFiniteRowOf<uint32_t>(rows, first_row, stream);
}

}  // namespace megatrain
