#ifndef RUNTIME_TRAINER_JOB_INPUTS_H_
#define RUNTIME_TRAINER_JOB_INPUTS_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/file_system.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/training_log.h"
#include "runtime/data/batch_reader.h"
#include "runtime/data/prepared_data.h"
#include "runtime/model_io/model_folder.h"
#include "runtime/trainer/train_job.h"

namespace megatrain {

// What a job reads, opened and checked by itself.
struct JobInputs {
  std::unique_ptr<ModelFolder> model;
  std::unique_ptr<PreparedData> data;
  std::unique_ptr<PreparedData> validation;  // null: none of its own
  std::optional<Checkpoint> checkpoint;      // that of start.resume_path or start.weights_path
  TrainingLog log;                           // of a training that goes on
};

// INVALID_ARGUMENT or what reading gives for a model or data that are not as they must be. The
// status of a checkpoint that cannot be used is marked by MarkUnusableCheckpoint.
absl::StatusOr<JobInputs> OpenJobInputs(const TrainJob& job, FileSystem& files);

// The job's batches with what of them is decided elsewhere: the rows that are set aside, and the
// rows of a micro-batch where the job leaves them open and goes on from a checkpoint, because they
// decide bits.
BatchOptions BatchesOf(const TrainJob& job, const JobInputs& inputs);

// What decides order and bits in this job, once `batches` are cut as planned.
TrainingOrder OrderOf(const TrainJob& job, const BatchOptions& batches, const JobInputs& inputs);

// FAILED_PRECONDITION that names the first difference because of which a training of `order` cannot
// go on from `checkpoint`: changed model files, changed data, another order of rows.
absl::Status CheckResumable(const Checkpoint& checkpoint, const TrainingOrder& order);

// Marks what opening or reading a checkpoint gave, beside its code: it is damaged, or, which says
// nothing about its bytes, the disk does not give it. What is neither gets no mark.
absl::Status MarkUnusableCheckpoint(absl::Status status);
bool IsCorruptCheckpoint(const absl::Status& status);
bool IsUnreadableCheckpoint(const absl::Status& status);

}  // namespace megatrain

#endif  // RUNTIME_TRAINER_JOB_INPUTS_H_
