#ifndef RUNTIME_CHECKPOINT_CHUNK_CHECK_H_
#define RUNTIME_CHECKPOINT_CHUNK_CHECK_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/checkpoint/chunk_threads.h"
#include "runtime/checkpoint/manifest.h"

namespace megatrain {

// Whether what was read of a chunk of `file`, below `folder`, has the checksum that it must have.
// DATA_LOSS names the place.
inline absl::Status CheckChunk(const std::string& folder, const CheckpointFile& file,
                               const FileChunk& chunk, uint32_t found) {
  if (file.chunk_crc32c[chunk.index] == found) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat(folder, "/", file.name, ": bytes ", chunk.offset_bytes,
                                          " to ", chunk.offset_bytes + chunk.size_bytes - 1,
                                          " are damaged: they do not have the checksum that ",
                                          kManifestName, " gives"));
}

}  // namespace megatrain

#endif  // RUNTIME_CHECKPOINT_CHUNK_CHECK_H_
