// Names of checkpoints as people type and read them: "addition/step-00000120".

#ifndef CLIENT_CLI_CHECKPOINT_NAME_H_
#define CLIENT_CLI_CHECKPOINT_NAME_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace megatrain {

// Whether it names a checkpoint and not just a job: "a/s" or "jobs/a/checkpoints/s".
bool NamesCheckpoint(std::string_view text);

// "jobs/a/checkpoints/s" of that, "a/s" or "jobs/a/s". INVALID_ARGUMENT for anything else.
absl::StatusOr<std::string> CheckpointName(std::string_view text);

// The same, and of "s" alone too: then of the job `job`, "jobs/a".
absl::StatusOr<std::string> CheckpointNameIn(std::string_view job, std::string_view text);

// "a/s" of "jobs/a/checkpoints/s".
std::string ShortCheckpointName(std::string_view full_name);

// "jobs/a" of "jobs/a/checkpoints/s".
std::string JobOfCheckpoint(std::string_view full_name);

}  // namespace megatrain

#endif  // CLIENT_CLI_CHECKPOINT_NAME_H_
