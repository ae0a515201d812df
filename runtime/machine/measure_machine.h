#ifndef RUNTIME_MACHINE_MEASURE_MACHINE_H_
#define RUNTIME_MACHINE_MEASURE_MACHINE_H_

#include <string>

#include "absl/status/statusor.h"
#include "runtime/base/clock.h"
#include "runtime/base/file_system.h"
#include "runtime/planner/machine_file.h"
#include "runtime/planner/machine_speeds.h"
#include "runtime/trainer/compute_backend.h"

namespace megatrain {

// The bus each way, both and through slabs, the host's memory, AdamW on its processors, and a layer
// in training. Of the device's speeds only the layer's is measured: each of them is an H200's times
// the ratio of both layers. Takes some 3 seconds on a GPU, whose clock is to come down under load,
// and less than one on processors; and 3 GiB of memory, which it gives back.
absl::StatusOr<MachineSpeeds> MeasureMachine(ComputeBackend& backend, int threads, Clock& clock);

// What becomes of a file that keeps another machine's profile, or none.
enum class ForeignFile { kReplace, kRefuse };

// What the file at `path` keeps of this machine, by the names of device and processor and by
// `threads`; measured, and kept there, when there is no such file or it may be replaced: the disk
// is that of the file's folder. Sizes of memory, which come and go, are not filled in.
// INVALID_ARGUMENT for a file that is to be refused.
absl::StatusOr<Machine> KnowMachine(const std::string& path, int threads, ForeignFile foreign,
                                    ComputeBackend& backend, FileSystem& files, Clock& clock);

// Acceptance rule R5, as a line for the log: what AdamW reaches of the memory's bandwidth. Below
// 60 % it starts with the warning's name, ADAMW_FAR_BELOW_MEMORY_BANDWIDTH.
struct OptimizerBandwidth {
  std::string line;
  bool is_low;
};
OptimizerBandwidth DescribeOptimizer(const MachineSpeeds& speeds, int threads);

}  // namespace megatrain

#endif  // RUNTIME_MACHINE_MEASURE_MACHINE_H_
