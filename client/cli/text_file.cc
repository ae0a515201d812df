#include "client/cli/text_file.h"

#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/lib/error_text.h"

namespace megatrain {

absl::StatusOr<std::string> ReadTextFile(const std::string& path, int64_t limit_bytes) {
  std::error_code error;
  const auto type = std::filesystem::status(path, error).type();
  if (type == std::filesystem::file_type::not_found) {
    return WithClientReason(absl::NotFoundError(absl::StrCat(path, ": no such file")),
                            "FILE_NOT_FOUND");
  }
  if (type == std::filesystem::file_type::directory) {
    return WithClientReason(absl::InvalidArgumentError(absl::StrCat(path, " is not a file")),
                            "NOT_A_FILE");
  }
  std::ifstream file(path, std::ios::binary);
  std::string text(static_cast<size_t>(limit_bytes) + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.eof() && file.gcount() <= limit_bytes) {
    return absl::PermissionDeniedError(absl::StrCat(path, " cannot be read"));
  }
  if (file.gcount() > limit_bytes) {
    return WithClientReason(
        absl::InvalidArgumentError(absl::StrCat(path, " is larger than ", limit_bytes, " bytes")),
        "FILE_TOO_LARGE");
  }
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

}  // namespace megatrain
