#ifndef RUNTIME_OPTIMIZER_MEMORY_BANDWIDTH_H_
#define RUNTIME_OPTIMIZER_MEMORY_BANDWIDTH_H_

#include <cstdint>

#include "absl/time/time.h"
#include "runtime/base/clock.h"

namespace megatrain {

// Bytes a second that `threads` read and write of `size_bytes` of memory that they change in place:
// what an update of states moves at best. For `at_least` after one round that touches it all.
double MeasureMemoryBandwidth(int threads, int64_t size_bytes, absl::Duration at_least,
                              const Clock& clock);

}  // namespace megatrain

#endif  // RUNTIME_OPTIMIZER_MEMORY_BANDWIDTH_H_
