#include "server/models/allowed_paths.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/errors/errors.h"

namespace megatrain {
namespace {

// Links resolved as far as the path exists; empty when that fails, such as in a loop of links.
std::string WithoutLinks(const std::string& path) {
  std::error_code error;
  std::string result = std::filesystem::weakly_canonical(path, error).string();
  if (error) return "";
  while (result.size() > 1 && result.back() == '/') result.pop_back();
  return result;
}

bool IsBelow(const std::string& path, const std::string& root) {
  return root == "/" || path == root || path.starts_with(root + "/");
}

}  // namespace

absl::StatusOr<std::string> AllowedPaths::Resolve(const std::string& path) const {
  if (path.empty() || path[0] != '/' || path.find('\0') != std::string::npos) {
    return InvalidFields({{"path", absl::StrCat("\"", path, "\" is no absolute path")}});
  }
  const std::string resolved = WithoutLinks(path);
  for (const std::string& root : roots_) {
    const std::string resolved_root = WithoutLinks(root);
    if (!resolved.empty() && !resolved_root.empty() && IsBelow(resolved, resolved_root)) {
      return resolved;
    }
  }
  const std::string allowed =
      roots_.empty() ? std::string("no folder") : absl::StrJoin(roots_, ", ");
  return WithReason(absl::PermissionDeniedError(absl::StrCat(
                        path, " lies in no folder that this server may use (", allowed,
                        "): move it there, or add its folder to allow_path in the server's "
                        "configuration")),
                    "PATH_NOT_ALLOWED", {{"path", path}, {"allowed", allowed}});
}

}  // namespace megatrain
