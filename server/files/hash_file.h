#ifndef SERVER_FILES_HASH_FILE_H_
#define SERVER_FILES_HASH_FILE_H_

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace megatrain {

// Reads a regular file in pieces of at most 1 MiB; an error of `visit` ends it and is its result.
// Follows no link at the path's end.
absl::Status ReadPieces(const std::string& path,
                        const std::function<absl::Status(std::string_view)>& visit);

// SHA-256 of such a file, 64 lower-case hex digits.
absl::StatusOr<std::string> HashFile(const std::string& path);

}  // namespace megatrain

#endif  // SERVER_FILES_HASH_FILE_H_
