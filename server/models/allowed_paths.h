#ifndef SERVER_MODELS_ALLOWED_PATHS_H_
#define SERVER_MODELS_ALLOWED_PATHS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace megatrain {

// The folders of the machine that clients may name. Thread-safe.
class AllowedPaths {
 public:
  explicit AllowedPaths(std::vector<std::string> roots) : roots_(std::move(roots)) {}

  // `path` without links, whether it exists or not. INVALID_ARGUMENT for a relative one;
  // PERMISSION_DENIED for one that is not below an allowed folder, so that nobody learns what
  // exists elsewhere.
  absl::StatusOr<std::string> Resolve(const std::string& path) const;

 private:
  const std::vector<std::string> roots_;
};

}  // namespace megatrain

#endif  // SERVER_MODELS_ALLOWED_PATHS_H_
