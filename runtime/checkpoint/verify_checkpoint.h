#ifndef RUNTIME_CHECKPOINT_VERIFY_CHECKPOINT_H_
#define RUNTIME_CHECKPOINT_VERIFY_CHECKPOINT_H_

#include "absl/status/status.h"
#include "runtime/base/byte_progress.h"
#include "runtime/base/file_system.h"
#include "runtime/checkpoint/checkpoint_folder.h"

namespace megatrain {

// Reads every byte on `threads` threads, at least 1, each with a buffer for a chunk.
// DATA_LOSS names the file and the bytes that are not what the manifest says. An error of
// `progress` ends it.
absl::Status VerifyCheckpoint(const Checkpoint& checkpoint, int threads, FileSystem& files,
                              const ByteProgress& progress = nullptr);

// The same of the weights alone.
absl::Status VerifyWeights(const Checkpoint& checkpoint, int threads, FileSystem& files,
                           const ByteProgress& progress = nullptr);

}  // namespace megatrain

#endif  // RUNTIME_CHECKPOINT_VERIFY_CHECKPOINT_H_
