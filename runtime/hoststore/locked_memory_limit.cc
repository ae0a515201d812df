#include "runtime/hoststore/locked_memory_limit.h"

#include <sys/resource.h>

#include "absl/strings/str_cat.h"

namespace megatrain {

std::string LockedMemoryLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) {
    return "unknown";
  }
  return limit.rlim_cur == RLIM_INFINITY ? "none" : absl::StrCat(limit.rlim_cur, " bytes");
}

}  // namespace megatrain
