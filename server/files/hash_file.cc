#include "server/files/hash_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "runtime/base/sha256.h"
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
