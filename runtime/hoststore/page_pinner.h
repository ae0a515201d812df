#ifndef RUNTIME_HOSTSTORE_PAGE_PINNER_H_
#define RUNTIME_HOSTSTORE_PAGE_PINNER_H_

#include <cstdint>

#include "absl/status/status.h"

namespace megatrain {

// Makes memory of this process one that a device reaches directly. One range may be pinned by
// several calls, but no copy may cross from one call's range into another's.
class PagePinner {
 public:
  virtual ~PagePinner() = default;

  // A whole number of pages. On an error nothing of it is pinned, and no later call of anybody
  // fails for it.
  virtual absl::Status Pin(void* data, int64_t size_bytes) = 0;

  // What one call of Pin took.
  virtual void Unpin(void* data) = 0;
};

}  // namespace megatrain

#endif  // RUNTIME_HOSTSTORE_PAGE_PINNER_H_
