#include "runtime/planner/proc_file.h"

#include <charconv>
#include <fstream>
#include <iterator>
#include <system_error>

namespace megatrain {

std::optional<std::string> ReadProcFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return std::nullopt;
  }
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file.bad()) {
    return std::nullopt;
  }
  return text;
}

std::vector<std::string_view> SplitNonEmpty(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    const size_t end = text.find(separator);
    const std::string_view piece = text.substr(0, end);
    if (!piece.empty()) {
      pieces.push_back(piece);
    }
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return pieces;
}

std::optional<int64_t> LeadingNumber(std::string_view text) {
  const size_t start = text.find_first_not_of(" \t");
  if (start == std::string_view::npos) {
    return std::nullopt;
  }
  text.remove_prefix(start);
  int64_t value = 0;
  const std::from_chars_result result =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc()) {
    return std::nullopt;
  }
  return value;
}

std::optional<int64_t> NumberAfter(std::string_view text, std::string_view key) {
  for (const std::string_view line : SplitNonEmpty(text, '\n')) {
    if (line.starts_with(key)) {
      return LeadingNumber(line.substr(key.size()));
    }
  }
  return std::nullopt;
}

}  // namespace megatrain
