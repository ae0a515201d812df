#ifndef RUNTIME_KERNELS_CUDA_DEVICE_MATH_H_
#define RUNTIME_KERNELS_CUDA_DEVICE_MATH_H_

#include <cstdint>
#include <span>

#include "runtime/device/device_math.h"

namespace megatrain {

// DeviceMath on the launcher's CUDA stream.
class CudaDeviceMath final : public DeviceMath {
 public:
  bool stages_loads() const override { return true; }
  absl::Status LoadFloats(const uint16_t* host_hi, const int16_t* host_lo, float* weights,
                          void* staging, int64_t count, Launcher& launcher) override;
  absl::Status JoinFloats(const uint16_t* hi, const int16_t* lo, float* weights, int64_t count,
                          Launcher& launcher) override;
  absl::Status AddTo(float* target, const float* source, int64_t count,
                     Launcher& launcher) override;
  absl::Status SumsOfSquares(const float* values, std::span<const ValueRange> ranges, double* sums,
                             void* scratch, Launcher& launcher) override;
  absl::Status RoundToBfloat16InPlace(float* values, int64_t count, Launcher& launcher) override;
  absl::Status CopyGradient(const GradientCopy& gradient, Launcher& launcher) override;
  absl::Status FindNonFiniteRow(const Rows& rows, int32_t* first_row, Launcher& launcher) override;
  absl::Status Update(const Span& span, const AdamWStep& step, Launcher& launcher) override;
};

}  // namespace megatrain

#endif  // RUNTIME_KERNELS_CUDA_DEVICE_MATH_H_
