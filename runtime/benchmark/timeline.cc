#include "runtime/benchmark/timeline.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

namespace megatrain {
namespace {

constexpr double kNanosecondsPerMicrosecond = 1e3;
constexpr double kNanosecondsPerMillisecond = 1e6;

}  // namespace

KernelTime SumKernels(std::span<const DeviceActivity> activities) {
  std::vector<std::pair<int64_t, int64_t>> kernels;
  KernelTime time;
  for (const DeviceActivity& activity : activities) {
    if (activity.kind == DeviceActivity::Kind::kKernel) {
      kernels.emplace_back(activity.start_nanoseconds, activity.end_nanoseconds);
      time.sum_nanoseconds += activity.end_nanoseconds - activity.start_nanoseconds;
    }
  }
  std::sort(kernels.begin(), kernels.end());
  int64_t covered_until = std::numeric_limits<int64_t>::min();
  for (const auto& [start, end] : kernels) {
    time.busy_nanoseconds += std::max<int64_t>(end - std::max(start, covered_until), 0);
    covered_until = std::max(covered_until, end);
  }
  return time;
}

std::vector<ActivityTotal> TotalsByName(std::span<const DeviceActivity> activities) {
  std::map<std::string, ActivityTotal> by_name;
  for (const DeviceActivity& activity : activities) {
    ActivityTotal& total = by_name[activity.name];
    total.name = activity.name;
    ++total.count;
    total.nanoseconds += activity.end_nanoseconds - activity.start_nanoseconds;
  }
  std::vector<ActivityTotal> totals;
  totals.reserve(by_name.size());
  for (auto& [name, total] : by_name) {
    totals.push_back(std::move(total));
  }
  std::sort(totals.begin(), totals.end(), [](const auto& left, const auto& right) {
    return std::tie(right.nanoseconds, left.name) < std::tie(left.nanoseconds, right.name);
  });
  return totals;
}

std::string FormatTotals(std::span<const ActivityTotal> totals, int64_t wall_nanoseconds) {
  std::string text = absl::StrFormat("%10s %8s %7s  %s\n", "ms", "count", "share", "name");
  for (const ActivityTotal& total : totals) {
    const double nanoseconds = static_cast<double>(total.nanoseconds);
    absl::StrAppendFormat(&text, "%10.3f %8d %6.2f%%  %s\n",
                          nanoseconds / kNanosecondsPerMillisecond, total.count,
                          100 * nanoseconds / static_cast<double>(wall_nanoseconds), total.name);
  }
  return text;
}

std::string ToTraceJson(std::span<const DeviceActivity> activities) {
  int64_t first = std::numeric_limits<int64_t>::max();
  for (const DeviceActivity& activity : activities) {
    first = std::min(first, activity.start_nanoseconds);
  }
  nlohmann::json events = nlohmann::json::array();
  for (const DeviceActivity& activity : activities) {
    const auto microseconds = [](int64_t nanoseconds) {
      return static_cast<double>(nanoseconds) / kNanosecondsPerMicrosecond;
    };
    nlohmann::json event = {
        {"ph", "X"},
        {"name", activity.name},
        {"pid", 0},
        {"tid", activity.stream},
        {"ts", microseconds(activity.start_nanoseconds - first)},
        {"dur", microseconds(activity.end_nanoseconds - activity.start_nanoseconds)}};
    if (activity.size_bytes > 0) {
      event["args"] = {{"bytes", activity.size_bytes}};
    }
    events.push_back(std::move(event));
  }
  return nlohmann::json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}}.dump();
}

}  // namespace megatrain
