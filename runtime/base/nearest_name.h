// The known name that a mistyped one was likely meant to be.

#ifndef RUNTIME_BASE_NEAREST_NAME_H_
#define RUNTIME_BASE_NEAREST_NAME_H_

#include <string>
#include <string_view>
#include <vector>

namespace megatrain {

// Insertions, deletions, replacements and swaps of neighbours, in bytes, that turn `a` into `b`.
int EditDistance(std::string_view a, std::string_view b);

// The name of `known` nearest to `name` (the first of equals), or "" when none is near enough to
// be worth a hint: at most a third of its length away, one edit always counts as near.
std::string NearestName(std::string_view name, const std::vector<std::string>& known);

}  // namespace megatrain

#endif  // RUNTIME_BASE_NEAREST_NAME_H_
