// What ran on a GPU and when, as data: shares, a table by kernel and a picture. Pure functions.

#ifndef RUNTIME_BENCHMARK_TIMELINE_H_
#define RUNTIME_BENCHMARK_TIMELINE_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace megatrain {

// One kernel or copy that ran on the device.
struct DeviceActivity {
  enum class Kind { kKernel, kCopyToDevice, kCopyToHost, kOther };

  Kind kind = Kind::kKernel;
  std::string name;
  int64_t start_nanoseconds = 0;  // of the device's clock
  int64_t end_nanoseconds = 0;
  int64_t stream = 0;
  int64_t size_bytes = 0;  // of a copy
};

// Nanoseconds of kernels: added up, and those with at least one of them running.
struct KernelTime {
  int64_t sum_nanoseconds = 0;
  int64_t busy_nanoseconds = 0;
};
KernelTime SumKernels(std::span<const DeviceActivity> activities);

// Activities of one name, the largest sum of time first.
struct ActivityTotal {
  std::string name;
  int64_t count = 0;
  int64_t nanoseconds = 0;
};
std::vector<ActivityTotal> TotalsByName(std::span<const DeviceActivity> activities);

// For people: name, count, milliseconds and share of `wall_nanoseconds`, a line each.
std::string FormatTotals(std::span<const ActivityTotal> totals, int64_t wall_nanoseconds);

// In the trace event format that browsers' trace viewers read: a track a stream, microseconds from
// the first activity on.
std::string ToTraceJson(std::span<const DeviceActivity> activities);

}  // namespace megatrain

#endif  // RUNTIME_BENCHMARK_TIMELINE_H_
