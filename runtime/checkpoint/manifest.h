// What a checkpoint's manifest.json says.
//
// The file is one JSON object. Its last field, "manifest_crc32c", is the CRC-32C of every byte
// before that field's own digits, and nothing may follow it but what closes the object, so that no
// byte can change unnoticed. Format 1 is read for good.

#ifndef RUNTIME_CHECKPOINT_MANIFEST_H_
#define RUNTIME_CHECKPOINT_MANIFEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/model/layer_template.h"
#include "runtime/optimizer/learning_rate.h"

namespace megatrain {

inline constexpr char kManifestName[] = "manifest.json";

// Files are checked in pieces of this size, so that a fault is located.
inline constexpr int64_t kCheckpointChunkBytes = int64_t{16} << 20;

// Why a checkpoint was written.
enum class CheckpointTrigger { kPeriodic, kManual, kPause, kDrain, kFinal, kPreempt };

// `periodic`, `manual`, `pause`, `drain`, `final`, `preempt`.
std::string_view TriggerName(CheckpointTrigger trigger);

// How an evaluation ended, and after which step.
struct EvaluationMark {
  int64_t step = 0;
  double loss = 0;
  friend bool operator==(const EvaluationMark&, const EvaluationMark&) = default;
};

// How far training is, beside the planes.
struct TrainingProgress {
  int64_t step = 0;              // optimizer steps done, skipped ones included: the data's cursor
  int64_t update_count = 0;      // those that updated: AdamW's own step
  int64_t skipped_in_a_row = 0;  // at the end
  uint32_t rows_crc32c = 0;      // of the numbers of all rows of these steps, in their order
  std::optional<EvaluationMark> last_evaluation;
  std::optional<EvaluationMark> best_evaluation;
  int64_t evaluations_without_gain = 0;  // in a row, at the end
  bool stopped_early = false;            // evaluations got no better: no step is left to do
  friend bool operator==(const TrainingProgress&, const TrainingProgress&) = default;
};

// What decides the order of rows and the bits of a step: the same in a training that goes on.
struct TrainingOrder {
  std::string model_fingerprint;
  std::string data_fingerprint;
  std::string validation_fingerprint;  // "" without validation data of their own
  double validation_split = 0;         // part of the rows that is held out
  int64_t seed = 0;
  int64_t batch_rows = 0;
  int64_t micro_batch_rows = 0;  // as planned
  int64_t max_sequence_length = 0;
  bool packing = false;
  ComputeDtype compute_dtype = ComputeDtype::kFloat32;
  friend bool operator==(const TrainingOrder&, const TrainingOrder&) = default;
};

struct CheckpointFile {
  std::string name;
  int64_t size_bytes = 0;
  uint32_t crc32c = 0;                 // of the whole file
  std::vector<uint32_t> chunk_crc32c;  // of each kCheckpointChunkBytes; the last may be shorter
  friend bool operator==(const CheckpointFile&, const CheckpointFile&) = default;
};

struct CheckpointManifest {
  TrainingProgress progress;
  TrainingOrder order;
  LearningRateSchedule schedule;
  std::vector<int64_t> unit_elements;  // by unit, with padding: how the planes are divided
  CheckpointTrigger trigger = CheckpointTrigger::kManual;
  absl::Time create_time;             // whole nanoseconds
  std::string spec;                   // opaque: who gave it knows what it means
  std::vector<CheckpointFile> files;  // sorted by name

  // Of all files but the manifest itself.
  int64_t SizeBytes() const;
};

std::string SerializeManifest(const CheckpointManifest& manifest);

// DATA_LOSS for a text that does not have its own checksum, INVALID_ARGUMENT naming a field that is
// absent or wrong, UNIMPLEMENTED for a newer format.
absl::StatusOr<CheckpointManifest> ParseCheckpointManifest(std::string_view text);

}  // namespace megatrain

#endif  // RUNTIME_CHECKPOINT_MANIFEST_H_
