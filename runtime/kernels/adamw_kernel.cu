#include "runtime/kernels/adamw_kernel.h"
#include "runtime/kernels/bfloat16_bits.cuh"
#include "runtime/kernels/cuda_status.h"
#include "runtime/kernels/vector.cuh"

namespace megatrain {
namespace {

constexpr int kThreads = 256;
constexpr int kPack = 4;            // elements: 16 bytes of every float array
constexpr int kPacksPerThread = 2;  // all loaded before the first is used
constexpr int64_t kPacksPerBlock = int64_t{kThreads} * kPacksPerThread;

// What an update reads and writes of kPack neighbours.
struct Elements {
  Pack<uint16_t, kPack> hi;
  Pack<int16_t, kPack> lo;
  Pack<float, kPack> moment1;
  Pack<float, kPack> moment2;
  Pack<float, kPack> gradient;
};

// The contract of adamw.h, one IEEE rounding an operation whatever the compiler's flags.
template <GradientForm kForm>
__device__ void UpdateElement(Elements& e, int i, const AdamWCoefficients& c) {
  float raw = e.gradient.values[i];
  if constexpr (kForm == GradientForm::kFloat32ToRound) {
    raw = __uint_as_float(uint32_t{RoundToBfloat16Bits(raw)} << 16);
  }
  const float g = __fmul_rn(raw, c.gradient_scale);
  // JoinBits of split_float.h.
  const uint32_t weight = (uint32_t{e.hi.values[i]} << 16) +
                          static_cast<uint32_t>(static_cast<int32_t>(e.lo.values[i]));
  float p = __fmul_rn(__uint_as_float(weight), c.decay);
  float& m = e.moment1.values[i];
  float& v = e.moment2.values[i];
  m = __fadd_rn(m, __fmul_rn(c.moment1_weight, __fsub_rn(g, m)));
  v = __fadd_rn(__fmul_rn(v, c.beta2), __fmul_rn(__fmul_rn(c.moment2_weight, g), g));
  const float denominator = __fadd_rn(__fdiv_rn(__fsqrt_rn(v), c.correction2), c.epsilon);
  p = __fadd_rn(p, __fdiv_rn(__fmul_rn(c.negative_step_size, m), denominator));
  // SplitBits of split_float.h.
  const uint32_t bits = __float_as_uint(p);
  e.hi.values[i] = static_cast<uint16_t>((bits + 0x8000u) >> 16);
  e.lo.values[i] = static_cast<int16_t>(bits);
}

template <GradientForm kForm>
__device__ Pack<float, kPack> LoadGradient(const void* gradient, int64_t at) {
  if constexpr (kForm == GradientForm::kBfloat16) {
    const auto halves = LoadPack<kPack>(static_cast<const uint16_t*>(gradient) + at);
    Pack<float, kPack> values;
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      values.values[i] = __uint_as_float(uint32_t{halves.values[i]} << 16);
    }
    return values;
  } else {
    return LoadPack<kPack>(static_cast<const float*>(gradient) + at);
  }
}

template <GradientForm kForm>
__global__ void __launch_bounds__(kThreads)
    UpdatePacks(AdamWArrays arrays, AdamWCoefficients coefficients) {
  const int64_t pack_count = arrays.count / kPack;
  const int64_t first = blockIdx.x * kPacksPerBlock + threadIdx.x;
  Elements elements[kPacksPerThread];
#pragma unroll
  for (int n = 0; n < kPacksPerThread; ++n) {
    const int64_t at = (first + n * kThreads) * kPack;
    if (at < pack_count * kPack) {
      elements[n] = {LoadPack<kPack>(arrays.hi + at), LoadPack<kPack>(arrays.lo + at),
                     LoadPack<kPack>(arrays.moment1 + at), LoadPack<kPack>(arrays.moment2 + at),
                     LoadGradient<kForm>(arrays.gradient, at)};
    }
  }
#pragma unroll
  for (int n = 0; n < kPacksPerThread; ++n) {
    const int64_t at = (first + n * kThreads) * kPack;
    if (at < pack_count * kPack) {
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        UpdateElement<kForm>(elements[n], i, coefficients);
      }
      StorePack(arrays.hi + at, elements[n].hi);
      StorePack(arrays.lo + at, elements[n].lo);
      StorePack(arrays.moment1 + at, elements[n].moment1);
      StorePack(arrays.moment2 + at, elements[n].moment2);
    }
  }
}

// The fewer than kPack elements behind the last pack.
template <GradientForm kForm>
__global__ void UpdateRest(AdamWArrays arrays, AdamWCoefficients coefficients) {
  const int64_t at = arrays.count / kPack * kPack + threadIdx.x;
  Elements elements = {};
  elements.hi.values[0] = arrays.hi[at];
  elements.lo.values[0] = arrays.lo[at];
  elements.moment1.values[0] = arrays.moment1[at];
  elements.moment2.values[0] = arrays.moment2[at];
  if constexpr (kForm == GradientForm::kBfloat16) {
    const uint16_t half = static_cast<const uint16_t*>(arrays.gradient)[at];
    elements.gradient.values[0] = __uint_as_float(uint32_t{half} << 16);
  } else {
    elements.gradient.values[0] = static_cast<const float*>(arrays.gradient)[at];
  }
  UpdateElement<kForm>(elements, 0, coefficients);
  arrays.hi[at] = elements.hi.values[0];
  arrays.lo[at] = elements.lo.values[0];
  arrays.moment1[at] = elements.moment1.values[0];
  arrays.moment2[at] = elements.moment2.values[0];
}

template <GradientForm kForm>
absl::Status Launch(const AdamWArrays& arrays, const AdamWCoefficients& coefficients,
                    cudaStream_t stream) {
  if (const int64_t packs = arrays.count / kPack; packs > 0) {
    UpdatePacks<kForm>
        <<<CeilDivide(packs, kPacksPerBlock), kThreads, 0, stream>>>(arrays, coefficients);
  }
  if (const int rest = static_cast<int>(arrays.count % kPack); rest > 0) {
    UpdateRest<kForm><<<1, rest, 0, stream>>>(arrays, coefficients);
  }
  return CheckLaunch("AdamW");
}

}  // namespace

absl::Status LaunchAdamW(const AdamWArrays& arrays, const AdamWCoefficients& coefficients,
                         cudaStream_t stream) {
  switch (arrays.gradient_form) {
    case GradientForm::kFloat32:
      return Launch<GradientForm::kFloat32>(arrays, coefficients, stream);
    case GradientForm::kFloat32ToRound:
      return Launch<GradientForm::kFloat32ToRound>(arrays, coefficients, stream);
    case GradientForm::kBfloat16:
      return Launch<GradientForm::kBfloat16>(arrays, coefficients, stream);
  }
  return absl::InternalError("AdamW: unknown form of a gradient");
}

}  // namespace megatrain
