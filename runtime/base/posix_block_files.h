#ifndef RUNTIME_BASE_POSIX_BLOCK_FILES_H_
#define RUNTIME_BASE_POSIX_BLOCK_FILES_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/base/file_system.h"

namespace megatrain {

// PosixFileSystem's files for much data: with O_DIRECT where the file system takes it.
absl::StatusOr<std::unique_ptr<BlockFile>> OpenPosixBlockFile(const std::string& path,
                                                              int64_t size_bytes);
absl::StatusOr<std::unique_ptr<ReadableFile>> OpenPosixReadableFile(const std::string& path);

}  // namespace megatrain

#endif  // RUNTIME_BASE_POSIX_BLOCK_FILES_H_
