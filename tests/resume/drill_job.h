#ifndef TESTS_RESUME_DRILL_JOB_H_
#define TESTS_RESUME_DRILL_JOB_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/config/model_config.h"
#include "runtime/trainer/compute_backend.h"
#include "runtime/trainer/train_job.h"

namespace megatrain {

struct DrillOptions {
  std::string folder;
  std::string shape = "qwen2.5-1.5b";
  int64_t layers = 0;  // 0: the shape's
  int64_t steps = 4;
  int64_t every = 2;
  int64_t kill_after = 3;
  int64_t rows = 16;
  int64_t tokens = 1024;
  std::string dtype = "bf16";
};

// Writes the drill's model, with random weights, and its prepared data into `folder`, if they are
// not there.
absl::Status WriteDrillInputs(const DrillOptions& options);

// The job over those inputs. `name`: its checkpoints are in folder/name.
TrainJob MakeDrillJob(const DrillOptions& options, const std::string& name);

// Trains it, from its newest valid checkpoint if it has one, to the checkpoint after its last step,
// without an export. Prints a line for each step ("step N LOSS") and checkpoint ("checkpoint ID
// BYTES WRITE_SECONDS STALL_SECONDS DIRECT"), and to standard error what it does and since when.
// Keeps one checkpoint.
absl::Status RunDrillJob(const DrillOptions& options, const std::string& name,
                         ComputeBackend& backend);

}  // namespace megatrain

#endif  // TESTS_RESUME_DRILL_JOB_H_
