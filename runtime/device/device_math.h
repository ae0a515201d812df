// The pipeline's own arithmetic on device memory: what is neither a model's nor the host's.

#ifndef RUNTIME_DEVICE_DEVICE_MATH_H_
#define RUNTIME_DEVICE_DEVICE_MATH_H_

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "runtime/device/device.h"
#include "runtime/device/value_range.h"
#include "runtime/optimizer/adamw.h"

namespace megatrain {

// Every call is enqueued on the launcher's stream, or done at once where the device is the host.
// Results depend on the values alone, never on addresses or threads. Pointers are device memory,
// 64-byte aligned, but where a name says host. INTERNAL when a launch fails. Thread-safe for
// different launchers.
class DeviceMath {
 public:
  virtual ~DeviceMath() = default;

  // Whether LoadFloats needs its staging memory.
  virtual bool stages_loads() const = 0;

  // weights[i] = hi[i] joined with lo[i], both in host memory. `staging`, of 4 bytes an element, is
  // free again when later work of the same stream runs.
  virtual absl::Status LoadFloats(const uint16_t* host_hi, const int16_t* host_lo, float* weights,
                                  void* staging, int64_t count, Launcher& launcher) = 0;

  // The same from device memory.
  virtual absl::Status JoinFloats(const uint16_t* hi, const int16_t* lo, float* weights,
                                  int64_t count, Launcher& launcher) = 0;

  // target[i] += source[i].
  virtual absl::Status AddTo(float* target, const float* source, int64_t count,
                             Launcher& launcher) = 0;

  // sums[i] = the sum of the squares of ranges[i] of `values` in fp64, by a tree that its count
  // alone decides. `scratch` holds kSumScratchBytes.
  static constexpr int64_t kSumScratchBytes = 128 << 10;
  virtual absl::Status SumsOfSquares(const float* values, std::span<const ValueRange> ranges,
                                     double* sums, void* scratch, Launcher& launcher) = 0;

  // fp32 to the nearest bf16, ties to even, packed to the front of the same memory. NaN stays NaN.
  virtual absl::Status RoundToBfloat16InPlace(float* values, int64_t count, Launcher& launcher) = 0;

  // Copies an fp32 gradient, rounded as above where `form` is kBfloat16, or as it is where that is
  // kFloat32. The two do not overlap.
  struct GradientCopy {
    const float* values;
    void* copy;
    GradientForm form;
    int64_t count;
  };
  virtual absl::Status CopyGradient(const GradientCopy& gradient, Launcher& launcher) = 0;

  // *first_row = the first row with an infinity or NaN, or -1. `values` is [rows, width], of
  // element_bytes 2 (bf16) or 4 (fp32).
  struct Rows {
    const void* values;
    int element_bytes;
    int64_t rows;
    int64_t width;
  };
  virtual absl::Status FindNonFiniteRow(const Rows& rows, int32_t* first_row,
                                        Launcher& launcher) = 0;

  // Consecutive elements of a unit that the device updates.
  struct Span {
    uint16_t* hi;
    int16_t* lo;
    float* moment1;
    float* moment2;
    const void* gradient;
    GradientForm gradient_form;
    int64_t count;
  };

  // AdamW with the bits of UpdateSpan.
  virtual absl::Status Update(const Span& span, const AdamWStep& step, Launcher& launcher) = 0;
};

}  // namespace megatrain

#endif  // RUNTIME_DEVICE_DEVICE_MATH_H_
