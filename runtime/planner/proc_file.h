// Reading of the small text files under /proc and /sys.

#ifndef RUNTIME_PLANNER_PROC_FILE_H_
#define RUNTIME_PLANNER_PROC_FILE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace megatrain {

// The whole file, or nothing when it cannot be read: groups and controllers come and go.
std::optional<std::string> ReadProcFile(const std::string& path);

// Pieces between `separator`s, empty ones left out.
std::vector<std::string_view> SplitNonEmpty(std::string_view text, char separator);

// The decimal number at the start of `text` after blanks; nothing when there is none or it is
// larger than int64.
std::optional<int64_t> LeadingNumber(std::string_view text);

// The number after `key` in the first line that starts with it: "MemAvailable:" in meminfo,
// "inactive_file " in memory.stat.
std::optional<int64_t> NumberAfter(std::string_view text, std::string_view key);

}  // namespace megatrain

#endif  // RUNTIME_PLANNER_PROC_FILE_H_
