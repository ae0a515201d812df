// The machine as the planner sees it.

#ifndef RUNTIME_PLANNER_MACHINE_H_
#define RUNTIME_PLANNER_MACHINE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "runtime/planner/machine_speeds.h"

namespace megatrain {

enum class Backend { kCpu, kCuda };

// `cpu` and `cuda`.
std::string_view BackendName(Backend backend);

// What a plan may count on. All sizes in bytes.
struct MachineProfile {
  Backend backend = Backend::kCpu;
  // What the engine process may hold in all: what is free now plus what it holds already.
  int64_t host_available_bytes = 0;
  // Of the GPU, for a pipeline. On the CPU backend the device arena is host memory and this is not
  // read.
  int64_t device_memory_bytes = 0;
  // Of the GPU, what is not for a pipeline: of a context and libraries, and a reserve. A limit on
  // all that a job takes of the GPU counts it too.
  int64_t device_overhead_bytes = 0;
  // Resident memory of the engine with its libraries and without a job.
  int64_t engine_baseline_bytes = 0;
  int64_t disk_write_bytes_per_second = 0;  // of the folder that keeps the state; 0: not known
  MachineSpeeds speeds;
};

// What a plan may take of the GPU when a job takes at most `limit_bytes` of it in all (0: no
// limit). The daemon and the engine both ask this, lest one accepts what the other refuses.
int64_t UsableDeviceBytes(const MachineProfile& machine, int64_t limit_bytes);

// MachineProfile's device_overhead_bytes, of a GPU that is this process's alone.
int64_t DeviceOverheadBytes(int64_t total_bytes, int64_t free_bytes);

// What a pipeline may take of a GPU's memory: what is free, less a reserve for what libraries load
// later; all that the process has of it, libraries included, stays within `limit_bytes` (0: none).
int64_t PipelineDeviceBytes(int64_t total_bytes, int64_t free_bytes, int64_t limit_bytes);

// Memory that this process can still take, and what sets the limit, in words.
struct HostMemory {
  int64_t available_bytes = 0;
  std::string limit;
};

// The minimum of MemAvailable less a reserve of 5 % of MemTotal, of what control groups leave
// (cgroup_memory.h), and of RLIMIT_AS and RLIMIT_DATA less what this process uses of them. A limit
// on locked memory is none here: nothing is pinned that cannot also be pageable. Swap never
// counts. UNAVAILABLE when /proc/meminfo cannot be read. `root` is "" for the machine, or the
// folder of a tree that looks like it.
absl::StatusOr<HostMemory> ReadAvailableHostMemory(const std::string& root);

// Resident memory of a process.
struct ProcessMemory {
  int64_t resident_bytes = 0;
  int64_t peak_resident_bytes = 0;  // since the start or the last reset
};

// Of this process, from root/proc/self/status. UNAVAILABLE when it cannot be read.
absl::StatusOr<ProcessMemory> ReadProcessMemory(const std::string& root);

// Lets the peak of this process start anew at its resident memory of now. UNAVAILABLE when the
// kernel refuses.
absl::Status ResetPeakResident();

}  // namespace megatrain

#endif  // RUNTIME_PLANNER_MACHINE_H_
