#ifndef RUNTIME_CHECKPOINT_DISK_BUFFER_H_
#define RUNTIME_CHECKPOINT_DISK_BUFFER_H_

#include <cstdint>
#include <cstdlib>
#include <memory>

#include "absl/status/statusor.h"

namespace megatrain {

struct FreeMemory {
  void operator()(char* data) const { std::free(data); }
};

// Memory that begins on a block of a disk, for direct reads and writes.
using DiskBuffer = std::unique_ptr<char, FreeMemory>;

// Of `size_bytes`, rounded up to a block. RESOURCE_EXHAUSTED when there is no memory.
absl::StatusOr<DiskBuffer> MakeDiskBuffer(int64_t size_bytes);

}  // namespace megatrain

#endif  // RUNTIME_CHECKPOINT_DISK_BUFFER_H_
