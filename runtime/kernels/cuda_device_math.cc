#include "runtime/kernels/cuda_device_math.h"

#include <cuda_runtime_api.h>

#include "runtime/kernels/adamw_kernel.h"
#include "runtime/kernels/cuda_status.h"
#include "runtime/kernels/gradient_math.h"
#include "runtime/kernels/split_float_kernel.h"
#include "runtime/optimizer/adamw_step.h"

namespace megatrain {
namespace {

static_assert(kSumsOfSquaresScratchBytes <= DeviceMath::kSumScratchBytes);

cudaStream_t StreamOf(Launcher& launcher) {
  return static_cast<cudaStream_t>(launcher.native_stream());
}

}  // namespace

absl::Status CudaDeviceMath::LoadFloats(const uint16_t* host_hi, const int16_t* host_lo,
                                        float* weights, void* staging, int64_t count,
                                        Launcher& launcher) {
  auto* hi = static_cast<uint16_t*>(staging);
  auto* lo = reinterpret_cast<int16_t*>(hi + count);
  launcher.CopyToDevice(hi, host_hi, count * static_cast<int64_t>(sizeof(*hi)));
  launcher.CopyToDevice(lo, host_lo, count * static_cast<int64_t>(sizeof(*lo)));
  return JoinFloats(hi, lo, weights, count, launcher);
}

absl::Status CudaDeviceMath::JoinFloats(const uint16_t* hi, const int16_t* lo, float* weights,
                                        int64_t count, Launcher& launcher) {
  return LaunchJoinFloats(hi, lo, weights, count, StreamOf(launcher));
}

absl::Status CudaDeviceMath::AddTo(float* target, const float* source, int64_t count,
                                   Launcher& launcher) {
  return LaunchAddTo(target, source, count, StreamOf(launcher));
}

absl::Status CudaDeviceMath::SumsOfSquares(const float* values, std::span<const ValueRange> ranges,
                                           double* sums, void* scratch, Launcher& launcher) {
  return LaunchSumsOfSquares(values, ranges, sums, scratch, StreamOf(launcher));
}

absl::Status CudaDeviceMath::RoundToBfloat16InPlace(float* values, int64_t count,
                                                    Launcher& launcher) {
  return LaunchRoundToBfloat16InPlace(values, count, StreamOf(launcher));
}

absl::Status CudaDeviceMath::CopyGradient(const GradientCopy& gradient, Launcher& launcher) {
  if (gradient.form == GradientForm::kFloat32) {
    return CudaStatus(
        cudaMemcpyAsync(gradient.copy, gradient.values, gradient.count * sizeof(float),
                        cudaMemcpyDeviceToDevice, StreamOf(launcher)),
        "keep a gradient");
  }
  return LaunchRoundToBfloat16(gradient.values, static_cast<uint16_t*>(gradient.copy),
                               gradient.count, StreamOf(launcher));
}

absl::Status CudaDeviceMath::FindNonFiniteRow(const Rows& rows, int32_t* first_row,
                                              Launcher& launcher) {
  return LaunchFindNonFiniteRow({.values = rows.values,
                                 .element_bytes = rows.element_bytes,
                                 .rows = rows.rows,
                                 .width = rows.width},
                                first_row, StreamOf(launcher));
}

absl::Status CudaDeviceMath::Update(const Span& span, const AdamWStep& step, Launcher& launcher) {
  return LaunchAdamW({.hi = span.hi,
                      .lo = span.lo,
                      .moment1 = span.moment1,
                      .moment2 = span.moment2,
                      .gradient = span.gradient,
                      .gradient_form = span.gradient_form,
                      .count = span.count},
                     AdamWCoefficients(step), StreamOf(launcher));
}

}  // namespace megatrain
