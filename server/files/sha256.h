#ifndef SERVER_FILES_SHA256_H_
#define SERVER_FILES_SHA256_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct evp_md_ctx_st;

namespace megatrain {

// SHA-256 of bytes that come in pieces. Not thread-safe.
class Sha256 {
 public:
  Sha256();

  void Update(std::string_view data);

  // 64 lower-case hex digits. The last call.
  std::string HexDigest();

 private:
  std::unique_ptr<evp_md_ctx_st, void (*)(evp_md_ctx_st*)> context_;
};

// Reads a regular file in pieces of at most 1 MiB; an error of `visit` ends it and is its result.
// Follows no link at the path's end.
absl::Status ReadPieces(const std::string& path,
                        const std::function<absl::Status(std::string_view)>& visit);

absl::StatusOr<std::string> HashFile(const std::string& path);

}  // namespace megatrain

#endif  // SERVER_FILES_SHA256_H_
