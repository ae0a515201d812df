#ifndef RUNTIME_CHECKPOINT_LOAD_CHECKPOINT_H_
#define RUNTIME_CHECKPOINT_LOAD_CHECKPOINT_H_

#include "absl/status/status.h"
#include "runtime/base/byte_progress.h"
#include "runtime/base/file_system.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/config/model_layout.h"
#include "runtime/hoststore/host_store.h"

namespace megatrain {

enum class LoadedState {
  kEverything,
  kWeights,  // the exact masters; moments become zero
};

// Streams a checkpoint straight into the store, whatever that held before, and compares every
// checksum on the way: nothing is copied twice. DATA_LOSS names what is damaged, and the store's
// contents are undefined then; FAILED_PRECONDITION for a checkpoint of a model of another shape.
absl::Status LoadCheckpoint(const Checkpoint& checkpoint, LoadedState loaded,
                            const ModelLayout& layout, HostStore& store, FileSystem& files,
                            const ByteProgress& progress = nullptr);

}  // namespace megatrain

#endif  // RUNTIME_CHECKPOINT_LOAD_CHECKPOINT_H_
