#include "runtime/checkpoint/disk_buffer.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/file_system.h"
#include "runtime/base/round_up.h"

namespace megatrain {

absl::StatusOr<DiskBuffer> MakeDiskBuffer(int64_t size_bytes) {
  DiskBuffer buffer(static_cast<char*>(
      std::aligned_alloc(kDiskBlockBytes, RoundUp(size_bytes, kDiskBlockBytes))));
  if (buffer == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for a buffer of ", size_bytes, " bytes"));
  }
  return buffer;
}

}  // namespace megatrain
