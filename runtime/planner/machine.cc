#include "runtime/planner/machine.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "runtime/planner/cgroup_memory.h"
#include "runtime/planner/proc_file.h"

namespace megatrain {
namespace {

constexpr int64_t kBytesPerKilobyte = 1024;  // the kernel's kB

// Of the machine's memory, for everything else that runs on it.
constexpr int64_t kReservePercent = 5;

// Of a GPU: kernels of libraries are loaded when they are first used.
constexpr int64_t kDeviceReserveBytes = int64_t{1} << 30;

void TakeTighter(int64_t available_bytes, const std::string& limit, HostMemory& memory) {
  if (available_bytes < memory.available_bytes) {
    memory = HostMemory{std::max<int64_t>(available_bytes, 0), limit};
  }
}

// A resource limit of the process that counts address space of one sort.
void TakeResourceLimit(const std::string& limits, const std::string& status, std::string_view name,
                       std::string_view used_key, HostMemory& memory) {
  const std::optional<int64_t> limit_bytes = NumberAfter(limits, name);  // none: unlimited
  const std::optional<int64_t> used_kilobytes = NumberAfter(status, used_key);
  if (limit_bytes && used_kilobytes) {
    TakeTighter(*limit_bytes - *used_kilobytes * kBytesPerKilobyte,
                "the process's limit \"" + std::string(name) + "\"", memory);
  }
}

}  // namespace

std::string_view BackendName(Backend backend) { return backend == Backend::kCpu ? "cpu" : "cuda"; }

int64_t UsableDeviceBytes(const MachineProfile& machine, int64_t limit_bytes) {
  if (limit_bytes == 0) {
    return machine.device_memory_bytes;
  }
  return std::clamp<int64_t>(limit_bytes - machine.device_overhead_bytes, 0,
                             machine.device_memory_bytes);
}

int64_t DeviceOverheadBytes(int64_t total_bytes, int64_t free_bytes) {
  return total_bytes == 0 ? 0 : total_bytes - free_bytes + kDeviceReserveBytes;
}

int64_t PipelineDeviceBytes(int64_t total_bytes, int64_t free_bytes, int64_t limit_bytes) {
  const int64_t overhead = DeviceOverheadBytes(total_bytes, free_bytes);
  return UsableDeviceBytes({.device_memory_bytes = std::max<int64_t>(total_bytes - overhead, 0),
                            .device_overhead_bytes = overhead},
                           limit_bytes);
}

absl::StatusOr<HostMemory> ReadAvailableHostMemory(const std::string& root) {
  const std::string path = root + "/proc/meminfo";
  const std::string text = ReadProcFile(path).value_or("");
  const std::optional<int64_t> total = NumberAfter(text, "MemTotal:");
  const std::optional<int64_t> available = NumberAfter(text, "MemAvailable:");
  if (!total || !available) {
    return absl::UnavailableError(path + ": no MemTotal or no MemAvailable in it");
  }
  const int64_t reserve = *total * kReservePercent / 100;
  HostMemory memory{std::max<int64_t>(*available - reserve, 0) * kBytesPerKilobyte,
                    "the machine's free memory less a reserve"};
  if (const std::optional<CgroupMemory> group = ReadCgroupMemory(root)) {
    TakeTighter(group->available_bytes, "the memory limit of control group " + group->group,
                memory);
  }
  const std::string limits = ReadProcFile(root + "/proc/self/limits").value_or("");
  const std::string status = ReadProcFile(root + "/proc/self/status").value_or("");
  TakeResourceLimit(limits, status, "Max address space", "VmSize:", memory);
  TakeResourceLimit(limits, status, "Max data size", "VmData:", memory);
  return memory;
}

absl::StatusOr<ProcessMemory> ReadProcessMemory(const std::string& root) {
  const std::string path = root + "/proc/self/status";
  const std::string text = ReadProcFile(path).value_or("");
  const std::optional<int64_t> resident = NumberAfter(text, "VmRSS:");
  const std::optional<int64_t> peak = NumberAfter(text, "VmHWM:");
  if (!resident || !peak) {
    return absl::UnavailableError(path + ": no VmRSS or no VmHWM in it");
  }
  return ProcessMemory{*resident * kBytesPerKilobyte, *peak * kBytesPerKilobyte};
}

absl::Status ResetPeakResident() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5\n" << std::flush;  // 5: the peak resident set size (man 5 proc)
  return file ? absl::OkStatus()
              : absl::UnavailableError(
                    "/proc/self/clear_refs: the kernel refuses to reset the "
                    "peak of resident memory");
}

}  // namespace megatrain
