// Names of resources: `jobs/{job}`, `models/{model}/versions/{version}`.

#ifndef SERVER_NAMES_RESOURCE_NAME_H_
#define SERVER_NAMES_RESOURCE_NAME_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace megatrain {

// An ID: `[a-z]([a-z0-9-]{0,61}[a-z0-9])?`.
bool IsResourceId(std::string_view id);

// The rule of IsResourceId in words, for messages.
inline constexpr char kResourceIdRule[] =
    "1 to 63 of a-z, 0-9 and -, which starts with a letter and does not end with -";

// The parts of `name` that stand for the stars of `pattern`, such as "models/*/versions/*"; none
// when it does not match. A part is an ID, after `versions/` a number from 1 without leading 0.
std::optional<std::vector<std::string>> MatchResourceName(std::string_view pattern,
                                                          std::string_view name);

// A random UUID (version 4).
std::string NewUid();

// A random ID that starts with `prefix`, such as "job-k3x9q2m7".
std::string NewResourceId(std::string_view prefix);

}  // namespace megatrain

#endif  // SERVER_NAMES_RESOURCE_NAME_H_
