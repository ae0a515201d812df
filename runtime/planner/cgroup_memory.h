// What control groups leave of memory to a process (acceptance rule R4).

#ifndef RUNTIME_PLANNER_CGROUP_MEMORY_H_
#define RUNTIME_PLANNER_CGROUP_MEMORY_H_

#include <cstdint>
#include <optional>
#include <string>

namespace megatrain {

// The tightest group above this process.
struct CgroupMemory {
  int64_t available_bytes = 0;  // limit - working set, at least 0
  int64_t limit_bytes = 0;
  std::string group;  // its folder, for messages
};

// The minimum of limit - working set over this process's groups and all their ancestors that can
// be seen, in hierarchies of version 1 and of version 2. A working set is the usage without
// inactive file pages: those the kernel gives up before it kills, active ones it may not. Nothing
// when no group has a limit. `root` is "" for the machine, or the folder of a tree that looks
// like it.
std::optional<CgroupMemory> ReadCgroupMemory(const std::string& root);

}  // namespace megatrain

#endif  // RUNTIME_PLANNER_CGROUP_MEMORY_H_
