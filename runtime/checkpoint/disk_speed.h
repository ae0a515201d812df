#ifndef RUNTIME_CHECKPOINT_DISK_SPEED_H_
#define RUNTIME_CHECKPOINT_DISK_SPEED_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/clock.h"
#include "runtime/base/file_system.h"

namespace megatrain {

// Bytes a second that the disk of `folder`, which exists, takes of a checkpoint: of one file that
// is written as a checkpoint's are, up to `size_bytes`, which are a multiple of 16 MiB, and for
// about `most_time`. Leaves nothing there. 0 when the disk has no room for it.
absl::StatusOr<int64_t> MeasureDiskWrite(const std::string& folder, int64_t size_bytes,
                                         absl::Duration most_time, FileSystem& files,
                                         const Clock& clock);

}  // namespace megatrain

#endif  // RUNTIME_CHECKPOINT_DISK_SPEED_H_
