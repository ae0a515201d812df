#include "runtime/checkpoint/verify_checkpoint.h"

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/status_macros.h"
#include "runtime/checkpoint/chunk_check.h"
#include "runtime/checkpoint/chunk_threads.h"
#include "runtime/checkpoint/disk_buffer.h"
#include "runtime/checkpoint/state_files.h"

namespace megatrain {
namespace {

bool IsAny(const std::string&) { return true; }

bool IsWeights(const std::string& name) {
  return std::any_of(kStateFiles.begin(), kStateFiles.end(), [&name](const StateFile& file) {
    return file.is_weights && file.name == name;
  });
}

absl::Status VerifyFiles(const Checkpoint& checkpoint, bool (*is_checked)(const std::string&),
                         int threads, FileSystem& files, const ByteProgress& progress) {
  std::vector<std::unique_ptr<ReadableFile>> opened;
  std::vector<int64_t> sizes;
  for (const CheckpointFile& file : checkpoint.manifest.files) {
    MT_ASSIGN_OR_RETURN(opened.emplace_back(),
                        files.OpenForReading(absl::StrCat(checkpoint.path, "/", file.name)));
    sizes.push_back(is_checked(file.name) ? file.size_bytes : 0);
  }
  const std::vector<FileChunk> chunks = ChunksOf(sizes);
  int64_t buffer_bytes = kDiskBlockBytes;
  for (const FileChunk& chunk : chunks) {
    buffer_bytes = std::max(buffer_bytes, chunk.size_bytes);
  }
  std::vector<DiskBuffer> buffers(threads);
  for (DiskBuffer& buffer : buffers) {
    MT_ASSIGN_OR_RETURN(buffer, MakeDiskBuffer(buffer_bytes));
  }
  return ForEachChunk(
      chunks, threads,
      [&](const FileChunk& chunk, int thread) {
        const std::span<char> buffer(buffers[thread].get(), static_cast<size_t>(chunk.size_bytes));
        MT_RETURN_IF_ERROR(opened[chunk.file]->ReadAt(chunk.offset_bytes, buffer));
        return CheckChunk(checkpoint.path, checkpoint.manifest.files[chunk.file], chunk,
                          Crc32c({buffer.data(), buffer.size()}));
      },
      progress);
}

}  // namespace

absl::Status VerifyCheckpoint(const Checkpoint& checkpoint, int threads, FileSystem& files,
                              const ByteProgress& progress) {
  return VerifyFiles(checkpoint, &IsAny, threads, files, progress);
}

absl::Status VerifyWeights(const Checkpoint& checkpoint, int threads, FileSystem& files,
                           const ByteProgress& progress) {
  return VerifyFiles(checkpoint, &IsWeights, threads, files, progress);
}

}  // namespace megatrain
