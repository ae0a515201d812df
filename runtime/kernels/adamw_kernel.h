#ifndef RUNTIME_KERNELS_ADAMW_KERNEL_H_
#define RUNTIME_KERNELS_ADAMW_KERNEL_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "runtime/optimizer/adamw_step.h"

namespace megatrain {

// `count` consecutive elements in device memory, every array aligned to 16 bytes; none overlap.
struct AdamWArrays {
  uint16_t* hi;
  int16_t* lo;
  float* moment1;
  float* moment2;
  const void* gradient;
  GradientForm gradient_form;
  int64_t count;
};

// The update of adamw.h with the same bits, also of subnormal values; gradients are rounded to the
// nearest bf16, ties to even. Bound by memory: 28 bytes an element, 26 with a bf16 gradient.
//
// Made to run beside matrix products on a stream of lower priority: every block moves 56 KiB and is
// gone after some microseconds. Blocks of a product that are launched meanwhile get each processor
// as soon as it has finished the few it holds, and what a product leaves idle, in its last wave and
// between two launches, is filled with these. A bounded grid of blocks that stay would hold its
// processors for a unit's whole update, and products whose blocks divide the work evenly among all
// processors would wait for the last of them.
absl::Status LaunchAdamW(const AdamWArrays& arrays, const AdamWCoefficients& coefficients,
                         cudaStream_t stream);

}  // namespace megatrain

#endif  // RUNTIME_KERNELS_ADAMW_KERNEL_H_
