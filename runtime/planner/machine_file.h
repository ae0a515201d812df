// A machine as a file: what the engine measured of its own and keeps, or somebody wrote for one
// that is not there; and some machines that are known by name. Pure.

#ifndef RUNTIME_PLANNER_MACHINE_FILE_H_
#define RUNTIME_PLANNER_MACHINE_FILE_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/planner/machine.h"

namespace megatrain {

struct Machine {
  std::string name;  // device, processor and threads in words; measured anew when it changes
  MachineProfile profile;
  bool has_kernels = true;  // the engine trains on its GPU; else it can only be planned for
};

// One JSON object, whose keys docs/GPU.md lists; without sizes that are 0, which are not known.
std::string ToJson(const Machine& machine);

// INVALID_ARGUMENT names the key that is missing, unknown or out of range.
absl::StatusOr<Machine> ParseMachine(std::string_view json);

// h200-1536g, rtx3090-128g, a100-pcie: what is free of their memory, and speeds from data sheets
// and measurements.
std::vector<std::string> MachineNames();
absl::StatusOr<Machine> MachineByName(std::string_view name);

}  // namespace megatrain

#endif  // RUNTIME_PLANNER_MACHINE_FILE_H_
