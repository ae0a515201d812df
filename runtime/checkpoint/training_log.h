// What a training told of its steps and evaluations up to a checkpoint. It is part of the
// checkpoint, so that who keeps a log of losses finds there what was lost on its way to him. No
// times: of two trainings with equal bits the logs are equal too.

#ifndef RUNTIME_CHECKPOINT_TRAINING_LOG_H_
#define RUNTIME_CHECKPOINT_TRAINING_LOG_H_

#include <cstdint>
#include <deque>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/base/file_system.h"
#include "runtime/checkpoint/checkpoint_folder.h"

namespace megatrain {

// The figures of one step or evaluation.
struct LogEntry {
  enum class Kind : int64_t { kStep, kSkippedStep, kEvaluation };
  Kind kind = Kind::kStep;
  int64_t step = 0;  // steps done with it
  double loss = 0;
  double gradient_norm = 0;  // of steps, as the next two
  double learning_rate = 0;
  int64_t token_count = 0;
  int64_t loss_token_count = 0;
};

using TrainingLog = std::deque<LogEntry>;  // oldest first

// The newest ones are kept.
inline constexpr int64_t kMaxLogEntries = int64_t{1} << 14;

// The file of it, as a list of LogEntry's fields of 8 bytes each, little-endian.
inline constexpr char kTrainingLogName[] = "training_log.bin";
inline constexpr int64_t kLogEntryBytes = 56;

void AddToLog(const LogEntry& entry, TrainingLog& log);

std::string SerializeTrainingLog(const TrainingLog& log);

// Empty when the checkpoint has none. DATA_LOSS names what is damaged.
absl::StatusOr<TrainingLog> ReadTrainingLog(const Checkpoint& checkpoint, FileSystem& files);

}  // namespace megatrain

#endif  // RUNTIME_CHECKPOINT_TRAINING_LOG_H_
