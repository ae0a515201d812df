#include "client/lib/file_digest.h"

#include <openssl/evp.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "client/lib/error_text.h"
#include "runtime/base/check.h"

namespace megatrain {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;

absl::Status CheckIsFile(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    return WithClientReason(absl::NotFoundError(absl::StrCat(path, ": no such file")),
                            "FILE_NOT_FOUND");
  }
  if (status.type() != std::filesystem::file_type::regular) {
    return WithClientReason(absl::InvalidArgumentError(absl::StrCat(path, " is not a file")),
                            "NOT_A_FILE");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<FileDigest> DigestFile(const std::string& path,
                                      const std::function<void(int64_t)>& progress) {
  if (absl::Status is_file = CheckIsFile(path); !is_file.ok()) {
    return is_file;
  }
  std::ifstream file(path, std::ios::binary);
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> hash(EVP_MD_CTX_new(),
                                                                     &EVP_MD_CTX_free);
  MT_CHECK(EVP_DigestInit_ex(hash.get(), EVP_sha256(), nullptr) == 1);
  FileDigest result;
  std::vector<char> piece(kPieceBytes);
  while (file) {
    file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    MT_CHECK(EVP_DigestUpdate(hash.get(), piece.data(), static_cast<size_t>(file.gcount())) == 1);
    result.size_bytes += file.gcount();
    progress(result.size_bytes);
  }
  if (!file.eof()) {
    return absl::PermissionDeniedError(absl::StrCat(path, " cannot be read"));
  }
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int digest_bytes = 0;
  MT_CHECK(EVP_DigestFinal_ex(hash.get(), digest, &digest_bytes) == 1);
  result.sha256 = absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest), digest_bytes));
  return result;
}

}  // namespace megatrain
