#ifndef RUNTIME_BASE_BYTE_PROGRESS_H_
#define RUNTIME_BASE_BYTE_PROGRESS_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"

namespace megatrain {

// Hears how far long work over bytes is: those done so far, and all. Called by one thread at a
// time. An error ends the work, which returns it. Empty: nobody listens.
using ByteProgress = std::function<absl::Status(int64_t done_bytes, int64_t all_bytes)>;

inline absl::Status TellProgress(const ByteProgress& progress, int64_t done_bytes,
                                 int64_t all_bytes) {
  return progress ? progress(done_bytes, all_bytes) : absl::OkStatus();
}

}  // namespace megatrain

#endif  // RUNTIME_BASE_BYTE_PROGRESS_H_
