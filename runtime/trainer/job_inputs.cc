#include "runtime/trainer/job_inputs.h"

#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/config/model_config.h"

namespace megatrain {
namespace {

constexpr char kCorruptMark[] = "megatrain/corrupt_checkpoint";
constexpr char kUnreadableMark[] = "megatrain/unreadable_checkpoint";

absl::Status CheckVocabulary(const PreparedDataInfo& data, const ModelConfig& config) {
  if (data.largest_token < config.vocab_size) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the data holds token ", data.largest_token, " but the model's vocabulary ends at ",
      config.vocab_size - 1, ": prepare the data with this model's tokenizer"));
}

absl::StatusOr<std::unique_ptr<PreparedData>> OpenData(const std::string& path,
                                                       const std::string& fingerprint,
                                                       const ModelConfig& config) {
  MT_ASSIGN_OR_RETURN(std::unique_ptr<PreparedData> data, PreparedData::Open(path));
  if (!fingerprint.empty() && data->info().fingerprint != fingerprint) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": is not the data that the job was given (fingerprint ",
                     data->info().fingerprint, ", not ", fingerprint, ")"));
  }
  MT_RETURN_IF_ERROR(CheckVocabulary(data->info(), config));
  return data;
}

absl::StatusOr<Checkpoint> OpenStart(const std::string& path, FileSystem& files) {
  absl::StatusOr<Checkpoint> checkpoint = OpenCheckpoint(path, files);
  return checkpoint.ok() ? std::move(checkpoint)
                         : absl::StatusOr<Checkpoint>(MarkUnusableCheckpoint(checkpoint.status()));
}

absl::Status Differs(const Checkpoint& checkpoint, const std::string& what) {
  return absl::FailedPreconditionError(
      absl::StrCat("cannot go on from ", checkpoint.id, ": ", what));
}

// The number or word of the job's that is another one in the checkpoint; empty: all are the same.
std::string DifferentKey(const TrainingOrder& was, const TrainingOrder& is) {
  const auto differs = [](const char* name, auto before, auto now) {
    return before == now ? std::string()
                         : absl::StrCat(name, " was ", before, " and is ", now, " now");
  };
  for (const std::string& key :
       {differs("train.seed", was.seed, is.seed),
        differs("train.batch_rows", was.batch_rows, is.batch_rows),
        differs("train.micro_batch_rows", was.micro_batch_rows, is.micro_batch_rows),
        differs("train.max_sequence_length", was.max_sequence_length, is.max_sequence_length),
        differs("train.packing", was.packing, is.packing),
        differs("the size of train.compute_dtype", SizeBytes(was.compute_dtype),
                SizeBytes(is.compute_dtype)),
        differs("evaluation.split", was.validation_split, is.validation_split)}) {
    if (!key.empty()) {
      return key;
    }
  }
  return "";
}

}  // namespace

absl::StatusOr<JobInputs> OpenJobInputs(const TrainJob& job, FileSystem& files) {
  JobInputs inputs;
  if (files.Exists(job.output_path)) {
    return absl::InvalidArgumentError(absl::StrCat(job.output_path, ": exists already"));
  }
  MT_ASSIGN_OR_RETURN(inputs.model, ModelFolder::Open(job.model_path, files));
  const ModelConfig& config = inputs.model->config();
  MT_RETURN_IF_ERROR(CheckTrainable(config));
  MT_ASSIGN_OR_RETURN(inputs.data, OpenData(job.data_path, job.data_fingerprint, config));
  if (!job.evaluation.data_path.empty()) {
    MT_ASSIGN_OR_RETURN(inputs.validation, OpenData(job.evaluation.data_path,
                                                    job.evaluation.data_fingerprint, config));
  }
  const std::string& start =
      job.start.resume_path.empty() ? job.start.weights_path : job.start.resume_path;
  if (!start.empty()) {
    MT_ASSIGN_OR_RETURN(inputs.checkpoint, OpenStart(start, files));
  }
  if (!job.start.resume_path.empty()) {
    absl::StatusOr<TrainingLog> log = ReadTrainingLog(*inputs.checkpoint, files);
    if (!log.ok()) {
      return MarkUnusableCheckpoint(log.status());
    }
    inputs.log = *std::move(log);
  }
  return inputs;
}

BatchOptions BatchesOf(const TrainJob& job, const JobInputs& inputs) {
  BatchOptions batches = job.batches;
  batches.held_out_split = job.evaluation.split;
  if (!job.start.resume_path.empty() && batches.micro_batch_rows == 0) {
    batches.micro_batch_rows = inputs.checkpoint->manifest.order.micro_batch_rows;
  }
  return batches;
}

TrainingOrder OrderOf(const TrainJob& job, const BatchOptions& batches, const JobInputs& inputs) {
  return {.model_fingerprint = job.model_fingerprint,
          .data_fingerprint = inputs.data->info().fingerprint,
          .validation_fingerprint =
              inputs.validation == nullptr ? "" : inputs.validation->info().fingerprint,
          .validation_split = batches.held_out_split,
          .seed = batches.seed,
          .batch_rows = batches.batch_rows,
          .micro_batch_rows = batches.micro_batch_rows,
          .max_sequence_length = batches.max_sequence_length,
          .packing = batches.packing,
          .compute_dtype = job.compute_dtype};
}

absl::Status CheckResumable(const Checkpoint& checkpoint, const TrainingOrder& order) {
  const TrainingOrder& was = checkpoint.manifest.order;
  if (was.model_fingerprint != order.model_fingerprint) {
    return Differs(checkpoint,
                   absl::StrCat("the model's files have changed since (fingerprint ",
                                was.model_fingerprint, ", now ", order.model_fingerprint, ")"));
  }
  if (was.data_fingerprint != order.data_fingerprint) {
    return Differs(checkpoint,
                   absl::StrCat("the data set has changed since (fingerprint ",
                                was.data_fingerprint, ", now ", order.data_fingerprint, ")"));
  }
  if (was.validation_fingerprint != order.validation_fingerprint) {
    return Differs(
        checkpoint,
        absl::StrCat("the data set of the evaluation has changed since (fingerprint ",
                     was.validation_fingerprint, ", now ", order.validation_fingerprint, ")"));
  }
  const std::string key = DifferentKey(was, order);
  return key.empty() ? absl::OkStatus() : Differs(checkpoint, key);
}

absl::Status MarkUnusableCheckpoint(absl::Status status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnimplemented:
      return status;
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kInvalidArgument:
      status.SetPayload(kCorruptMark, absl::Cord());
      return status;
    default:
      status.SetPayload(kUnreadableMark, absl::Cord());
      return status;
  }
}

bool IsCorruptCheckpoint(const absl::Status& status) {
  return status.GetPayload(kCorruptMark).has_value();
}

bool IsUnreadableCheckpoint(const absl::Status& status) {
  return status.GetPayload(kUnreadableMark).has_value();
}

}  // namespace megatrain
