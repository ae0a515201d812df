#ifndef RUNTIME_CHECKPOINT_WRITE_CHECKPOINT_H_
#define RUNTIME_CHECKPOINT_WRITE_CHECKPOINT_H_

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/byte_progress.h"
#include "runtime/base/file_system.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/training_log.h"
#include "runtime/hoststore/host_store.h"

namespace megatrain {

// Writes in flight that keep a disk busy; each is one chunk of the store's own memory.
inline constexpr int kCheckpointThreads = 8;

// Room that a checkpoint takes on the disk: an upper bound.
int64_t CheckpointBytesOnDisk(std::span<const int64_t> unit_elements);

// RESOURCE_EXHAUSTED with the numbers when fewer than `needed_bytes` can be taken on the disk of
// `folder`, which exists.
absl::Status CheckRoomForCheckpoints(const std::string& folder, int64_t needed_bytes,
                                     FileSystem& files);

struct WrittenCheckpoint {
  Checkpoint checkpoint;
  bool direct = false;  // past the page cache; else the file system does not take O_DIRECT
};

// Writes the store's state into `folder`, which is made: first as tmp-step-..., then, durable,
// under its name, so that it is there complete or not at all. A checkpoint of that name is
// replaced: it goes only when this one is durable. `manifest.files` is filled in here, and
// unit_elements are the store's. A log that is not empty becomes part of it. Nobody changes the
// store meanwhile. No memory to speak of is taken.
//
// RESOURCE_EXHAUSTED, with sizes, for a disk without room; else what the disk gives. After an error
// nothing of it is left, as far as the disk lets it be removed, and older checkpoints are as they
// were.
absl::StatusOr<WrittenCheckpoint> WriteCheckpoint(HostStore& store, CheckpointManifest manifest,
                                                  const std::string& folder, FileSystem& files,
                                                  const TrainingLog& log = {},
                                                  const ByteProgress& progress = nullptr);

}  // namespace megatrain

#endif  // RUNTIME_CHECKPOINT_WRITE_CHECKPOINT_H_
