#include "runtime/checkpoint/chunk_threads.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "runtime/base/mutex.h"
#include "runtime/checkpoint/manifest.h"

namespace megatrain {

std::vector<FileChunk> ChunksOf(std::span<const int64_t> file_sizes) {
  std::vector<FileChunk> chunks;
  for (size_t file = 0; file < file_sizes.size(); ++file) {
    int index = 0;
    for (int64_t offset = 0; offset < file_sizes[file]; offset += kCheckpointChunkBytes) {
      chunks.push_back({static_cast<int>(file), index++, offset,
                        std::min(kCheckpointChunkBytes, file_sizes[file] - offset)});
    }
  }
  return chunks;
}

absl::Status ForEachChunk(std::span<const FileChunk> chunks, int threads,
                          const std::function<absl::Status(const FileChunk&, int thread)>& work,
                          const ByteProgress& progress) {
  int64_t all_bytes = 0;
  for (const FileChunk& chunk : chunks) {
    all_bytes += chunk.size_bytes;
  }
  std::atomic<size_t> next = 0;
  Mutex mutex;
  absl::Status first_error;
  int64_t done_bytes = 0;
  const auto run = [&](int thread) {
    for (size_t i = next++; i < chunks.size(); i = next++) {
      absl::Status status = work(chunks[i], thread);
      MutexLock lock(&mutex);
      done_bytes += chunks[i].size_bytes;
      if (status.ok() && first_error.ok()) {
        status = TellProgress(progress, done_bytes, all_bytes);
      }
      if (!status.ok()) {
        first_error.Update(status);
        next = chunks.size();
      }
    }
  };
  {
    std::vector<std::jthread> running;
    const int count = static_cast<int>(std::min<size_t>(std::max(threads, 1), chunks.size()));
    for (int thread = 1; thread < count; ++thread) {
      running.emplace_back(run, thread);
    }
    run(0);
  }
  return first_error;
}

}  // namespace megatrain
