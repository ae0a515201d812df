#include "runtime/optimizer/adamw.h"

#include "runtime/base/check.h"
#include "runtime/optimizer/adamw_step.h"

// Compiles this file once more for every instruction set; the best one is chosen at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/optimizer/adamw.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, by highway's rule.
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace megatrain {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
hn::Vec<D> LoadGradient(D d, const float* gradient) {
  return hn::LoadU(d, gradient);
}

template <class D>
hn::Vec<D> LoadGradient(D d, const uint16_t* gradient) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::RebindToUnsigned<D> d32;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, gradient))));
}

// JoinBits of split_float.h.
template <class D>
hn::Vec<D> LoadWeight(D d, const uint16_t* hi, const int16_t* lo) {
  const hn::Rebind<uint16_t, D> d_hi;
  const hn::Rebind<int16_t, D> d_lo;
  const hn::RebindToUnsigned<D> d_bits;
  const hn::RebindToSigned<D> d_rest;
  const auto upper = hn::ShiftLeft<16>(hn::PromoteTo(d_bits, hn::LoadU(d_hi, hi)));
  const auto rest = hn::BitCast(d_bits, hn::PromoteTo(d_rest, hn::LoadU(d_lo, lo)));
  return hn::BitCast(d, hn::Add(upper, rest));
}

// SplitBits of split_float.h.
template <class D>
void StoreWeight(D d, hn::Vec<D> weight, uint16_t* hi, int16_t* lo) {
  const hn::Rebind<uint16_t, D> d_hi;
  const hn::Rebind<int16_t, D> d_lo;
  const hn::RebindToUnsigned<D> d_bits;
  const auto bits = hn::BitCast(d_bits, weight);
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Set(d_bits, 0x8000u)));
  hn::StoreU(hn::TruncateTo(d_hi, rounded), d_hi, hi);
  hn::StoreU(hn::BitCast(d_lo, hn::TruncateTo(d_hi, bits)), d_lo, lo);
}

// One vector of elements from `i` on. The order of operations is the contract in adamw.h.
template <class D, typename Gradient>
HWY_INLINE void UpdateVector(D d, const AdamWSpan& span, const Gradient* gradient,
                             const AdamWCoefficients& c, int64_t i) {
  const auto g = hn::Mul(LoadGradient(d, gradient + i), hn::Set(d, c.gradient_scale));
  auto p = hn::Mul(LoadWeight(d, span.hi + i, span.lo + i), hn::Set(d, c.decay));
  auto m = hn::LoadU(d, span.moment1 + i);
  m = hn::Add(m, hn::Mul(hn::Set(d, c.moment1_weight), hn::Sub(g, m)));
  hn::StoreU(m, d, span.moment1 + i);
  const auto square = hn::Mul(hn::Mul(hn::Set(d, c.moment2_weight), g), g);
  const auto v = hn::Add(hn::Mul(hn::LoadU(d, span.moment2 + i), hn::Set(d, c.beta2)), square);
  hn::StoreU(v, d, span.moment2 + i);
  const auto root = hn::Div(hn::Sqrt(v), hn::Set(d, c.correction2));
  const auto denominator = hn::Add(root, hn::Set(d, c.epsilon));
  p = hn::Add(p, hn::Div(hn::Mul(hn::Set(d, c.negative_step_size), m), denominator));
  StoreWeight(d, p, span.hi + i, span.lo + i);
}

// Elements: 2 KiB of a float plane. The processor's own prefetching stops at every 4 KiB, which
// costs a fifth of a thread's speed.
constexpr int64_t kPrefetchAhead = 512;

// What UpdateVector will read that far ahead of `i`; addresses behind the arrays do no harm.
template <typename Gradient>
HWY_INLINE void PrefetchVector(const AdamWSpan& span, const Gradient* gradient, int64_t i) {
  hwy::Prefetch(gradient + i + kPrefetchAhead);
  hwy::Prefetch(span.hi + i + kPrefetchAhead);
  hwy::Prefetch(span.lo + i + kPrefetchAhead);
  hwy::Prefetch(span.moment1 + i + kPrefetchAhead);
  hwy::Prefetch(span.moment2 + i + kPrefetchAhead);
}

template <typename Gradient>
void UpdateAll(const AdamWSpan& span, const AdamWCoefficients& coefficients) {
  const auto* gradient = static_cast<const Gradient*>(span.gradient);
  const hn::ScalableTag<float> vector;
  const hn::CappedTag<float, 1> single;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(vector));
  int64_t i = 0;
  for (; i + lanes <= span.count; i += lanes) {
    PrefetchVector(span, gradient, i);
    UpdateVector(vector, span, gradient, coefficients, i);
  }
  for (; i < span.count; ++i) {
    UpdateVector(single, span, gradient, coefficients, i);
  }
}

void Update(const AdamWSpan& span, const AdamWCoefficients& coefficients) {
  if (span.gradient_bytes == sizeof(float)) {
    UpdateAll<float>(span, coefficients);
  } else {
    UpdateAll<uint16_t>(span, coefficients);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace megatrain
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace megatrain {

HWY_EXPORT(Update);

void UpdateSpan(const AdamWSpan& span, const AdamWStep& step) {
  MT_CHECK(span.gradient_bytes == 2 || span.gradient_bytes == 4);
  MT_CHECK(step.step >= 1);
  HWY_DYNAMIC_DISPATCH(Update)(span, AdamWCoefficients(step));
}

}  // namespace megatrain
#endif  // HWY_ONCE
