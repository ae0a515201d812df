#include "runtime/checkpoint/write_checkpoint.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/write_file.h"
#include "runtime/checkpoint/chunk_threads.h"
#include "runtime/checkpoint/state_files.h"

namespace megatrain {
namespace {

// The log, the manifest but for its checksums, and what file systems add.
constexpr int64_t kOverheadBytes = int64_t{1} << 20;
static_assert(kMaxLogEntries * kLogEntryBytes <= kOverheadBytes * 7 / 8);
constexpr int64_t kChecksumTextBytes = 16;

// One save.
class Writer {
 public:
  Writer(HostStore& store, CheckpointManifest manifest, std::string folder, FileSystem& files,
         const TrainingLog& log, const ByteProgress& progress)
      : store_(store),
        manifest_(std::move(manifest)),
        folder_(std::move(folder)),
        id_(CheckpointId(manifest_.progress.step)),
        temporary_(absl::StrCat(folder_, "/", kTemporaryPrefix.data(), id_)),
        replaced_(absl::StrCat(folder_, "/", kReplacedPrefix.data(), id_)),
        path_(absl::StrCat(folder_, "/", id_)),
        files_(files),
        log_(log),
        progress_(progress) {}

  absl::StatusOr<WrittenCheckpoint> Run() {
    MT_RETURN_IF_ERROR(files_.MakeFolders(folder_));
    MT_RETURN_IF_ERROR(files_.RemoveTree(temporary_));
    MT_RETURN_IF_ERROR(
        CheckRoomForCheckpoints(folder_, CheckpointBytesOnDisk(manifest_.unit_elements), files_));
    const absl::Status status = WriteAndCommit();
    if (!status.ok()) {
      // Both are complaints about the same disk; the first says more.
      files_.RemoveTree(temporary_).IgnoreError();
      return status;
    }
    return WrittenCheckpoint{.checkpoint = {.id = id_,
                                            .path = path_,
                                            .manifest = std::move(manifest_),
                                            .manifest_bytes = manifest_bytes_},
                             .direct = direct_};
  }

 private:
  absl::Status WriteAndCommit() {
    MT_RETURN_IF_ERROR(files_.MakeFolders(temporary_));
    MT_RETURN_IF_ERROR(WritePlanes());
    MT_RETURN_IF_ERROR(WriteLog());
    MT_RETURN_IF_ERROR(WriteManifest());
    MT_RETURN_IF_ERROR(files_.SyncFolder(temporary_));
    return Commit();
  }

  absl::Status WritePlanes() {
    std::vector<std::unique_ptr<BlockFile>> opened;
    std::vector<int64_t> sizes;
    manifest_.files.clear();
    for (const StateFile& file : kStateFiles) {
      sizes.push_back(StateFileBytes(file, manifest_.unit_elements));
      MT_ASSIGN_OR_RETURN(
          opened.emplace_back(),
          files_.OpenForBlocks(absl::StrCat(temporary_, "/", file.name), sizes.back()));
      manifest_.files.push_back({.name = file.name, .size_bytes = sizes.back()});
    }
    const std::vector<FileChunk> chunks = ChunksOf(sizes);
    for (const FileChunk& chunk : chunks) {
      manifest_.files[chunk.file].chunk_crc32c.push_back(0);
    }
    MT_RETURN_IF_ERROR(ForEachChunk(
        chunks, kCheckpointThreads,
        [&](const FileChunk& chunk, int /*thread*/) {
          return WriteChunk(chunk, *opened[chunk.file]);
        },
        progress_));
    direct_ = true;
    for (const std::unique_ptr<BlockFile>& file : opened) {
      MT_RETURN_IF_ERROR(file->Sync());
      direct_ = direct_ && file->direct();
    }
    CombineChecksums(chunks);
    return absl::OkStatus();
  }

  absl::Status WriteChunk(const FileChunk& chunk, BlockFile& file) {
    uint32_t crc = 0;
    int64_t at = chunk.offset_bytes;
    MT_RETURN_IF_ERROR(ForEachPiece(kStateFiles[chunk.file], store_, manifest_.unit_elements,
                                    chunk.offset_bytes, chunk.size_bytes,
                                    [&](std::span<char> piece) {
                                      crc = ExtendCrc32c(crc, {piece.data(), piece.size()});
                                      const int64_t start = at;
                                      at += static_cast<int64_t>(piece.size());
                                      return file.WriteAt(start, piece);
                                    }));
    manifest_.files[chunk.file].chunk_crc32c[chunk.index] = crc;
    return absl::OkStatus();
  }

  void CombineChecksums(const std::vector<FileChunk>& chunks) {
    for (const FileChunk& chunk : chunks) {
      CheckpointFile& file = manifest_.files[chunk.file];
      file.crc32c = CombineCrc32c(file.crc32c, file.chunk_crc32c[chunk.index], chunk.size_bytes);
    }
  }

  absl::Status WriteLog() {
    if (log_.empty()) {
      return absl::OkStatus();
    }
    const std::string bytes = SerializeTrainingLog(log_);
    static_assert(kMaxLogEntries * kLogEntryBytes <= kCheckpointChunkBytes);
    const uint32_t crc = Crc32c(bytes);
    const CheckpointFile file{.name = kTrainingLogName,
                              .size_bytes = static_cast<int64_t>(bytes.size()),
                              .crc32c = crc,
                              .chunk_crc32c = {crc}};
    const auto place = std::find_if(manifest_.files.begin(), manifest_.files.end(),
                                    [&](const auto& other) { return other.name > file.name; });
    manifest_.files.insert(place, file);
    return WriteFileDurably(files_, absl::StrCat(temporary_, "/", kTrainingLogName), bytes);
  }

  absl::Status WriteManifest() {
    const std::string text = SerializeManifest(manifest_);
    manifest_bytes_ = static_cast<int64_t>(text.size());
    return WriteFileDurably(files_, absl::StrCat(temporary_, "/", kManifestName), text);
  }

  // Names are exchanged only now that both are durable.
  absl::Status Commit() {
    const bool replaces = files_.Exists(path_);
    if (replaces) {
      MT_RETURN_IF_ERROR(files_.RemoveTree(replaced_));
      MT_RETURN_IF_ERROR(files_.Rename(path_, replaced_));
    }
    absl::Status status = files_.Rename(temporary_, path_);
    if (status.ok()) {
      status = files_.SyncFolder(folder_);
    }
    if (!status.ok()) {
      Undo(replaces);
    } else if (replaces) {
      files_.RemoveTree(replaced_).IgnoreError();  // what is left of it exists for nobody
    }
    return status;
  }

  // Errors are complaints about the same disk as the one that is undone.
  void Undo(bool replaces) {
    files_.Rename(path_, temporary_).IgnoreError();
    if (replaces) {
      files_.Rename(replaced_, path_).IgnoreError();
    }
  }

  HostStore& store_;
  CheckpointManifest manifest_;
  const std::string folder_;
  const std::string id_;
  const std::string temporary_;
  const std::string replaced_;
  const std::string path_;
  FileSystem& files_;
  const TrainingLog& log_;
  const ByteProgress& progress_;
  int64_t manifest_bytes_ = 0;
  bool direct_ = false;
};

}  // namespace

int64_t CheckpointBytesOnDisk(std::span<const int64_t> unit_elements) {
  const int64_t state = StateBytes(unit_elements);
  return state + kOverheadBytes + state / kCheckpointChunkBytes * kChecksumTextBytes;
}

absl::Status CheckRoomForCheckpoints(const std::string& folder, int64_t needed_bytes,
                                     FileSystem& files) {
  MT_ASSIGN_OR_RETURN(const int64_t available_bytes, files.AvailableBytes(folder));
  if (available_bytes >= needed_bytes) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat("no room for checkpoints in ", folder, ": ",
                                                   needed_bytes, " bytes needed, ", available_bytes,
                                                   " available"));
}

absl::StatusOr<WrittenCheckpoint> WriteCheckpoint(HostStore& store, CheckpointManifest manifest,
                                                  const std::string& folder, FileSystem& files,
                                                  const TrainingLog& log,
                                                  const ByteProgress& progress) {
  return Writer(store, std::move(manifest), folder, files, log, progress).Run();
}

}  // namespace megatrain
