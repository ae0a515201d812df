#ifndef RUNTIME_CHECKPOINT_CHUNK_THREADS_H_
#define RUNTIME_CHECKPOINT_CHUNK_THREADS_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/byte_progress.h"

namespace megatrain {

// A piece of one of several files.
struct FileChunk {
  int file = 0;   // index
  int index = 0;  // in the file
  int64_t offset_bytes = 0;
  int64_t size_bytes = 0;
};

// All chunks of files of those sizes, file after file.
std::vector<FileChunk> ChunksOf(std::span<const int64_t> file_sizes);

// Calls `work` with each chunk once, on so many threads, in order but several at a time. The
// thread's number is in [0, threads). `progress` hears of each chunk that is done. After an error
// no chunk is begun; returns the first error.
absl::Status ForEachChunk(std::span<const FileChunk> chunks, int threads,
                          const std::function<absl::Status(const FileChunk&, int thread)>& work,
                          const ByteProgress& progress = nullptr);

}  // namespace megatrain

#endif  // RUNTIME_CHECKPOINT_CHUNK_THREADS_H_
