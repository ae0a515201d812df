// JSON from outside: bounded in size and depth before anything is built from it.

#ifndef RUNTIME_BASE_BOUNDED_JSON_H_
#define RUNTIME_BASE_BOUNDED_JSON_H_

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace megatrain {

struct JsonLimits {
  int64_t size_bytes = int64_t{1} << 20;
  int depth = 64;
};

// The value, in UTF-8. INVALID_ARGUMENT with line and column for text that is no JSON, is larger
// or deeper than `limits`, or repeats a key within one object. Uses no recursion: neither does
// giving back what it returns.
absl::StatusOr<nlohmann::json> ParseBoundedJson(std::string_view text, const JsonLimits& limits);

}  // namespace megatrain

#endif  // RUNTIME_BASE_BOUNDED_JSON_H_
