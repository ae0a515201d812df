#ifndef CLIENT_LIB_FILE_DIGEST_H_
#define CLIENT_LIB_FILE_DIGEST_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"

namespace megatrain {

struct FileDigest {
  int64_t size_bytes = 0;
  std::string sha256;  // 64 hex digits
};

// Reads the file once. `progress` is called with the bytes read so far. NOT_FOUND when there is
// none, INVALID_ARGUMENT for a folder, others as the system says.
absl::StatusOr<FileDigest> DigestFile(const std::string& path,
                                      const std::function<void(int64_t)>& progress);

}  // namespace megatrain

#endif  // CLIENT_LIB_FILE_DIGEST_H_
