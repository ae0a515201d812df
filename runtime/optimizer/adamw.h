#ifndef RUNTIME_OPTIMIZER_ADAMW_H_
#define RUNTIME_OPTIMIZER_ADAMW_H_

#include <cstdint>

#include "runtime/optimizer/adamw_step.h"

namespace megatrain {

// `count` consecutive elements in host memory, of any alignment. The five arrays do not overlap.
struct AdamWSpan {
  uint16_t* hi;
  int16_t* lo;
  float* moment1;
  float* moment2;
  const void* gradient;  // float, or bf16 when gradient_bytes is 2
  int gradient_bytes;    // 4 or 2
  int64_t count;
};

// AdamW with decoupled decay, as torch.optim.AdamW computes it (Loshchilov and Hutter, 2019,
// algorithm 2), in fp32 with bias corrections taken in fp64. Per element, in this order and with
// every operation rounded once (no fused multiply-add, IEEE division and square root):
//   g = gradient * scale;  p = p * (1 - lr * wd)
//   m = m + (1 - beta1) * (g - m);  v = v * beta2 + ((1 - beta2) * g) * g
//   p = p + ((-lr / (1 - beta1^t)) * m) / (sqrt(v) / sqrt(1 - beta2^t) + epsilon)
// The bits are the same on every instruction set and for every split into spans, given the
// default floating-point environment (no flush to zero). Thread-safe for disjoint spans.
void UpdateSpan(const AdamWSpan& span, const AdamWStep& step);

}  // namespace megatrain

#endif  // RUNTIME_OPTIMIZER_ADAMW_H_
