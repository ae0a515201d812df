#ifndef TESTS_RESUME_RESUME_DRILL_H_
#define TESTS_RESUME_RESUME_DRILL_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "runtime/base/file_system.h"
#include "runtime/trainer/compute_backend.h"

namespace megatrain {

// A program that kills and resumes a training of real size:
//   --folder F     on the disk to be measured; room for two checkpoints and the model
//   --shape NAME   runtime/config/shapes.h; --layers N fewer of its layers
//   --steps N, --every N, --kill-after N, --rows N, --tokens N (of a row), --dtype fp32|bf16
// A first process trains to the end. A second one is killed with SIGKILL once it tells of step
// kill-after, while it updates and does the next step; a third one goes on from the newest valid
// checkpoint. Prints a line of JSON with the speeds; exit status 0 when every loss that was told of
// twice is the same and the final weights and moments have the same checksums in both checkpoints,
// those of the resumed one being checked against the disk. Tells on standard error how far it is.
using MakeBackend =
    std::function<absl::StatusOr<std::unique_ptr<ComputeBackend>>(FileSystem& files)>;
int ResumeDrillMain(int argc, char** argv, const MakeBackend& make_backend);

}  // namespace megatrain

#endif  // TESTS_RESUME_RESUME_DRILL_H_
