#include "runtime/checkpoint/disk_speed.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/status_macros.h"
#include "runtime/checkpoint/chunk_threads.h"
#include "runtime/checkpoint/disk_buffer.h"
#include "runtime/checkpoint/write_checkpoint.h"

namespace megatrain {
namespace {

constexpr int64_t kWriteBytes = int64_t{16} << 20;
constexpr char kFill = 0x5a;  // no file system leaves it out, as some do zeros

struct Written {
  int64_t size_bytes = 0;
  absl::Duration time;
};

absl::StatusOr<Written> WriteFor(absl::Duration most_time, BlockFile& file, int64_t size_bytes,
                                 const Clock& clock) {
  MT_ASSIGN_OR_RETURN(const DiskBuffer block, MakeDiskBuffer(kWriteBytes));
  std::fill_n(block.get(), kWriteBytes, kFill);
  std::vector<FileChunk> writes;
  for (int64_t offset = 0; offset < size_bytes; offset += kWriteBytes) {
    writes.push_back({.offset_bytes = offset, .size_bytes = kWriteBytes});
  }
  std::atomic<int64_t> written_bytes = 0;
  const absl::Duration start = clock.MonotonicNow();
  const auto write = [&](const FileChunk& chunk, int /*thread*/) -> absl::Status {
    if (clock.MonotonicNow() - start > most_time) {
      return absl::OkStatus();
    }
    written_bytes += chunk.size_bytes;
    return file.WriteAt(chunk.offset_bytes, {block.get(), static_cast<size_t>(chunk.size_bytes)});
  };
  MT_RETURN_IF_ERROR(ForEachChunk(writes, kCheckpointThreads, write));
  MT_RETURN_IF_ERROR(file.Sync());
  return Written{.size_bytes = written_bytes, .time = clock.MonotonicNow() - start};
}

}  // namespace

absl::StatusOr<int64_t> MeasureDiskWrite(const std::string& folder, int64_t size_bytes,
                                         absl::Duration most_time, FileSystem& files,
                                         const Clock& clock) {
  const std::string path = folder + "/disk_speed.partial";
  absl::StatusOr<Written> written = absl::UnknownError("");
  {
    const absl::StatusOr<std::unique_ptr<BlockFile>> file = files.OpenForBlocks(path, size_bytes);
    written = file.ok() ? WriteFor(most_time, **file, size_bytes, clock) : file.status();
  }
  MT_RETURN_IF_ERROR(files.RemoveTree(path));
  if (absl::IsResourceExhausted(written.status())) {
    return 0;
  }
  MT_RETURN_IF_ERROR(written.status());
  return static_cast<int64_t>(static_cast<double>(written->size_bytes) /
                              std::max(absl::ToDoubleSeconds(written->time), 1e-6));
}

}  // namespace megatrain
