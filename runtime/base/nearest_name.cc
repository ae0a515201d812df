#include "runtime/base/nearest_name.h"

#include <algorithm>

namespace megatrain {

// Optimal string alignment: Levenshtein's recurrence and one more case for swapped neighbours.
int EditDistance(std::string_view a, std::string_view b) {
  const size_t width = b.size() + 1;
  std::vector<int> before_last(width), last(width), row(width);
  for (size_t j = 0; j < width; ++j) {
    row[j] = static_cast<int>(j);
  }
  for (size_t i = 1; i <= a.size(); ++i) {
    before_last.swap(last);
    last.swap(row);
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j < width; ++j) {
      const int replace = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replace, last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

std::string NearestName(std::string_view name, const std::vector<std::string>& known) {
  std::string nearest;
  int nearest_distance = 0;
  for (const std::string& candidate : known) {
    const int distance = EditDistance(name, candidate);
    const int limit = std::max(1, static_cast<int>(std::max(name.size(), candidate.size()) / 3));
    if (distance <= limit && (nearest.empty() || distance < nearest_distance)) {
      nearest = candidate;
      nearest_distance = distance;
    }
  }
  return nearest;
}

}  // namespace megatrain
