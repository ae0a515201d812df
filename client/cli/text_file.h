#ifndef CLIENT_CLI_TEXT_FILE_H_
#define CLIENT_CLI_TEXT_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace megatrain {

// A small file's content. NOT_FOUND, INVALID_ARGUMENT for a folder or a file larger than
// `limit_bytes`, PERMISSION_DENIED.
absl::StatusOr<std::string> ReadTextFile(const std::string& path, int64_t limit_bytes);

}  // namespace megatrain

#endif  // CLIENT_CLI_TEXT_FILE_H_
