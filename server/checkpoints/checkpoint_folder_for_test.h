// Folders of checkpoints as an engine would leave them, with little in them.

#ifndef SERVER_CHECKPOINTS_CHECKPOINT_FOLDER_FOR_TEST_H_
#define SERVER_CHECKPOINTS_CHECKPOINT_FOLDER_FOR_TEST_H_

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/training_log.h"

namespace megatrain {

struct FolderForTest {
  int64_t step = 0;
  CheckpointTrigger trigger = CheckpointTrigger::kPeriodic;
  std::optional<double> loss;                // of an evaluation at `step`
  std::string content = "weights of a toy";  // of weights_hi.bin
  int64_t create_seconds = 0;                // of the Unix epoch
  TrainingLog log;
};

// Makes `folder`/step-... and returns its ID.
std::string MakeCheckpointFolder(const std::string& folder, const FolderForTest& options);

}  // namespace megatrain

#endif  // SERVER_CHECKPOINTS_CHECKPOINT_FOLDER_FOR_TEST_H_
