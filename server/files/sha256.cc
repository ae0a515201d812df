#include "server/files/sha256.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;

absl::Status ReadFromDescriptor(int fd, const std::string& path,
                                const std::function<absl::Status(std::string_view)>& visit) {
  struct stat info;
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(path, " is no regular file"));
  }
  std::string piece(kPieceBytes, '\0');
  while (true) {
    const ssize_t count = ::read(fd, piece.data(), piece.size());
    if (count == 0) return absl::OkStatus();
    if (count > 0) {
      MT_RETURN_IF_ERROR(visit(std::string_view(piece).substr(0, static_cast<size_t>(count))));
    } else if (errno != EINTR) {
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
    }
  }
}

}  // namespace

Sha256::Sha256() : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
  MT_CHECK(context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
}

void Sha256::Update(std::string_view data) {
  MT_CHECK(EVP_DigestUpdate(context_.get(), data.data(), data.size()) == 1);
}

std::string Sha256::HexDigest() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int size = 0;
  MT_CHECK(EVP_DigestFinal_ex(context_.get(), digest.data(), &size) == 1);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest.data()), size));
}

absl::Status ReadPieces(const std::string& path,
                        const std::function<absl::Status(std::string_view)>& visit) {
  // Non-blocking, so that the open of a pipe returns; it has no effect on a regular file.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  }
  const absl::Status status = ReadFromDescriptor(fd, path, visit);
  ::close(fd);
  return status;
}

absl::StatusOr<std::string> HashFile(const std::string& path) {
  Sha256 hash;
  MT_RETURN_IF_ERROR(ReadPieces(path, [&hash](std::string_view piece) {
    hash.Update(piece);
    return absl::OkStatus();
  }));
  return hash.HexDigest();
}

}  // namespace megatrain
