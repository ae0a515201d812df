#ifndef RUNTIME_CHECKPOINT_VERIFY_CHECKPOINT_H_
#define RUNTIME_CHECKPOINT_VERIFY_CHECKPOINT_H_

#include "absl/status/status.h"
#include "runtime/base/file_system.h"
#include "runtime/checkpoint/checkpoint_folder.h"

namespace megatrain {

// Reads every byte on `threads` threads, at least 1, with a buffer of kCheckpointChunkBytes each.
// DATA_LOSS names the file and the bytes that are not what the manifest says.
absl::Status VerifyCheckpoint(const Checkpoint& checkpoint, int threads, FileSystem& files);

// The same of the weights alone.
absl::Status VerifyWeights(const Checkpoint& checkpoint, int threads, FileSystem& files);

}  // namespace megatrain

#endif  // RUNTIME_CHECKPOINT_VERIFY_CHECKPOINT_H_
