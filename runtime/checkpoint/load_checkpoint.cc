#include "runtime/checkpoint/load_checkpoint.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/status_macros.h"
#include "runtime/checkpoint/chunk_check.h"
#include "runtime/checkpoint/chunk_threads.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/state_files.h"
#include "runtime/checkpoint/write_checkpoint.h"

namespace megatrain {
namespace {

// What the manifest says of kStateFiles, one by one.
absl::StatusOr<std::vector<CheckpointFile>> FindStateFiles(const Checkpoint& checkpoint,
                                                           std::span<const int64_t> unit_elements) {
  const CheckpointManifest& manifest = checkpoint.manifest;
  std::vector<CheckpointFile> found;
  for (const StateFile& state : kStateFiles) {
    const int64_t size_bytes = StateFileBytes(state, unit_elements);
    std::copy_if(manifest.files.begin(), manifest.files.end(), std::back_inserter(found),
                 [&](const CheckpointFile& file) {
                   return file.name == state.name && file.size_bytes == size_bytes;
                 });
  }
  const bool same = std::equal(unit_elements.begin(), unit_elements.end(),
                               manifest.unit_elements.begin(), manifest.unit_elements.end()) &&
                    found.size() == kStateFiles.size();
  if (!same) {
    return absl::FailedPreconditionError(
        absl::StrCat(checkpoint.path, ": is of a model of another shape than the job's"));
  }
  return found;
}

void ZeroMoments(std::span<const int64_t> unit_elements, HostStore& store) {
  for (size_t i = 0; i < unit_elements.size(); ++i) {
    const int unit = static_cast<int>(i);
    const HostStore::Access access = store.BeginAccess(unit);
    std::memset(store.moment1(unit), 0, unit_elements[i] * sizeof(float));
    std::memset(store.moment2(unit), 0, unit_elements[i] * sizeof(float));
  }
}

}  // namespace

absl::Status LoadCheckpoint(const Checkpoint& checkpoint, LoadedState loaded,
                            const ModelLayout& layout, HostStore& store, FileSystem& files,
                            const ByteProgress& progress) {
  const std::vector<int64_t> unit_elements = UnitElements(layout);
  MT_ASSIGN_OR_RETURN(const std::vector<CheckpointFile> known,
                      FindStateFiles(checkpoint, unit_elements));
  std::vector<std::unique_ptr<ReadableFile>> opened;
  std::vector<int64_t> sizes;
  for (const StateFile& file : kStateFiles) {
    const bool read = loaded == LoadedState::kEverything || file.is_weights;
    MT_ASSIGN_OR_RETURN(opened.emplace_back(),
                        files.OpenForReading(absl::StrCat(checkpoint.path, "/", file.name)));
    sizes.push_back(read ? StateFileBytes(file, unit_elements) : 0);
  }
  if (loaded == LoadedState::kWeights) {
    ZeroMoments(unit_elements, store);
  }
  return ForEachChunk(
      ChunksOf(sizes), kCheckpointThreads,
      [&](const FileChunk& chunk, int /*thread*/) {
        uint32_t crc = 0;
        int64_t at = chunk.offset_bytes;
        MT_RETURN_IF_ERROR(ForEachPiece(kStateFiles[chunk.file], store, unit_elements,
                                        chunk.offset_bytes, chunk.size_bytes,
                                        [&](std::span<char> piece) {
                                          MT_RETURN_IF_ERROR(opened[chunk.file]->ReadAt(at, piece));
                                          crc = ExtendCrc32c(crc, {piece.data(), piece.size()});
                                          at += static_cast<int64_t>(piece.size());
                                          return absl::OkStatus();
                                        }));
        return CheckChunk(checkpoint.path, known[chunk.file], chunk, crc);
      },
      progress);
}

}  // namespace megatrain
