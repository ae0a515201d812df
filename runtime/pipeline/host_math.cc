#include "runtime/pipeline/host_math.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "runtime/hoststore/split_float.h"
#include "runtime/model/layer_template.h"
#include "runtime/pipeline/gradient_math.h"

namespace megatrain {
namespace {

// Of a gradient that an update rounds first, this many elements at a time.
constexpr int64_t kRoundedElements = 4096;

constexpr int kHalfBytes = 2;  // of a bf16

}  // namespace

absl::Status HostMath::LoadFloats(const uint16_t* host_hi, const int16_t* host_lo, float* weights,
                                  void* /*staging*/, int64_t count, Launcher& launcher) {
  return JoinFloats(host_hi, host_lo, weights, count, launcher);
}

absl::Status HostMath::JoinFloats(const uint16_t* hi, const int16_t* lo, float* weights,
                                  int64_t count, Launcher& /*launcher*/) {
  megatrain::JoinFloats(hi, lo, {weights, static_cast<size_t>(count)});
  return absl::OkStatus();
}

absl::Status HostMath::AddTo(float* target, const float* source, int64_t count,
                             Launcher& /*launcher*/) {
  const auto size = static_cast<size_t>(count);
  megatrain::AddTo({target, size}, {source, size});
  return absl::OkStatus();
}

absl::Status HostMath::SumsOfSquares(const float* values, std::span<const ValueRange> ranges,
                                     double* sums, void* /*scratch*/, Launcher& /*launcher*/) {
  for (const ValueRange& range : ranges) {
    *sums++ = SumOfSquares({values + range.offset, static_cast<size_t>(range.count)});
  }
  return absl::OkStatus();
}

absl::Status HostMath::RoundToBfloat16InPlace(float* values, int64_t count,
                                              Launcher& /*launcher*/) {
  megatrain::RoundToBfloat16InPlace({values, static_cast<size_t>(count)});
  return absl::OkStatus();
}

absl::Status HostMath::CopyGradient(const GradientCopy& gradient, Launcher& /*launcher*/) {
  if (gradient.form == GradientForm::kFloat32) {
    std::memcpy(gradient.copy, gradient.values,
                static_cast<size_t>(gradient.count) * sizeof(float));
    return absl::OkStatus();
  }
  auto* copy = static_cast<uint16_t*>(gradient.copy);
  for (int64_t i = 0; i < gradient.count; ++i) {
    copy[i] = RoundToBfloat16(gradient.values[i]);
  }
  return absl::OkStatus();
}

absl::Status HostMath::FindNonFiniteRow(const Rows& rows, int32_t* first_row,
                                        Launcher& /*launcher*/) {
  const auto dtype = rows.element_bytes == SizeBytes(ComputeDtype::kBfloat16)
                         ? ComputeDtype::kBfloat16
                         : ComputeDtype::kFloat32;
  const int64_t found = FirstNonFinite(rows.values, dtype, rows.rows * rows.width);
  *first_row = found < 0 ? -1 : static_cast<int32_t>(found / rows.width);
  return absl::OkStatus();
}

absl::Status HostMath::Update(const Span& span, const AdamWStep& step, Launcher& /*launcher*/) {
  const bool is_bf16 = span.gradient_form == GradientForm::kBfloat16;
  AdamWSpan update = {.hi = span.hi,
                      .lo = span.lo,
                      .moment1 = span.moment1,
                      .moment2 = span.moment2,
                      .gradient = span.gradient,
                      .gradient_bytes = static_cast<int>(is_bf16 ? kHalfBytes : sizeof(float)),
                      .count = span.count};
  if (span.gradient_form != GradientForm::kFloat32ToRound) {
    UpdateSpan(update, step);
    return absl::OkStatus();
  }
  const auto* gradient = static_cast<const float*>(span.gradient);
  std::array<float, kRoundedElements> rounded;
  for (int64_t first = 0; first < span.count; first += kRoundedElements) {
    const int64_t count = std::min(kRoundedElements, span.count - first);
    std::copy_n(gradient + first, count, rounded.begin());
    megatrain::RoundToBfloat16InPlace({rounded.data(), static_cast<size_t>(count)});
    update = {.hi = span.hi + first,
              .lo = span.lo + first,
              .moment1 = span.moment1 + first,
              .moment2 = span.moment2 + first,
              .gradient = rounded.data(),
              .gradient_bytes = kHalfBytes,
              .count = count};
    UpdateSpan(update, step);
  }
  return absl::OkStatus();
}

}  // namespace megatrain
