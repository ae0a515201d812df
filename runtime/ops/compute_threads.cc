#include "runtime/ops/compute_threads.h"

#include <ATen/Parallel.h>

#include "runtime/base/check.h"

namespace megatrain {

void SetComputeThreads(int count) {
  MT_CHECK(count >= 1);
  at::set_num_threads(count);
}

void LimitComputeThreads(int limit) {
  if (at::get_num_threads() > limit) {
    SetComputeThreads(limit);
  }
}

}  // namespace megatrain
