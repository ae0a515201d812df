#include "server/engine/job_conversion.h"

#include <cmath>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "google/protobuf/util/json_util.h"
#include "runtime/base/status_macros.h"
#include "runtime/trainer/job_inputs.h"
#include "server/planning/plan_conversion.h"
#include "server/resources/checkpoint_trigger.h"
#include "server/resources/timestamp.h"

namespace megatrain {
namespace {

// The value of a name, or INVALID_ARGUMENT that lists the names.
template <typename Value>
absl::StatusOr<Value> Named(const char* field, const std::string& name,
                            const std::map<std::string, Value>& values) {
  const auto found = values.find(name);
  if (found != values.end()) {
    return found->second;
  }
  std::string known;
  for (const auto& [known_name, value] : values) {
    absl::StrAppend(&known, known.empty() ? "" : ", ", known_name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is \"", name, "\": it must be one of ", known));
}

absl::Status CheckNumber(const char* field, double value, bool in_range, const char* range) {
  if (std::isfinite(value) && in_range) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", value, ": it must be ", range));
}

absl::Status SetOptimizer(const v1::OptimizerOptions& options, TrainJob& job) {
  if (options.name() != "adamw") {
    return absl::InvalidArgumentError(
        absl::StrCat("train.optimizer.name is \"", options.name(), "\": it must be adamw"));
  }
  job.schedule.peak = options.learning_rate();
  job.optimizer.beta1 = options.beta1();
  job.optimizer.beta2 = options.beta2();
  job.optimizer.epsilon = options.epsilon();
  job.optimizer.weight_decay = options.weight_decay();
  const auto is_beta = [](double beta) { return beta >= 0 && beta < 1; };
  MT_RETURN_IF_ERROR(CheckNumber("train.optimizer.learning_rate", options.learning_rate(),
                                 options.learning_rate() >= 0, "at least 0"));
  MT_RETURN_IF_ERROR(CheckNumber("train.optimizer.beta1", options.beta1(), is_beta(options.beta1()),
                                 "at least 0 and below 1"));
  MT_RETURN_IF_ERROR(CheckNumber("train.optimizer.beta2", options.beta2(), is_beta(options.beta2()),
                                 "at least 0 and below 1"));
  MT_RETURN_IF_ERROR(CheckNumber("train.optimizer.epsilon", options.epsilon(),
                                 options.epsilon() > 0, "greater than 0"));
  return CheckNumber("train.optimizer.weight_decay", options.weight_decay(),
                     options.weight_decay() >= 0, "at least 0");
}

absl::Status SetSchedule(const v1::ScheduleOptions& options, TrainJob& job) {
  MT_ASSIGN_OR_RETURN(job.schedule.shape,
                      Named<LearningRateShape>("train.schedule.name", options.name(),
                                               {{"constant", LearningRateShape::kConstant},
                                                {"linear", LearningRateShape::kLinear},
                                                {"cosine", LearningRateShape::kCosine}}));
  job.schedule.warmup_steps = options.warmup_steps();
  job.schedule.floor_ratio = options.floor_ratio();
  MT_RETURN_IF_ERROR(CheckNumber("train.schedule.warmup_steps",
                                 static_cast<double>(options.warmup_steps()),
                                 options.warmup_steps() >= 0, "at least 0"));
  return CheckNumber("train.schedule.floor_ratio", options.floor_ratio(),
                     options.floor_ratio() >= 0 && options.floor_ratio() <= 1, "from 0 to 1");
}

absl::Status SetTrain(const v1::TrainOptions& options, TrainJob& job) {
  job.batches = {.batch_rows = options.batch_rows(),
                 .micro_batch_rows = options.micro_batch_rows(),
                 .max_sequence_length = options.max_sequence_length(),
                 .packing = options.packing(),
                 .seed = options.seed(),
                 .epochs = options.epochs(),
                 .steps = options.steps()};
  MT_ASSIGN_OR_RETURN(
      job.compute_dtype,
      Named<ComputeDtype>("train.compute_dtype", options.compute_dtype(),
                          {{"fp32", ComputeDtype::kFloat32}, {"bf16", ComputeDtype::kBfloat16}}));
  MT_ASSIGN_OR_RETURN(job.attention,
                      Named<AttentionMode>("train.attention", options.attention(),
                                           {{"", AttentionMode::kFast},
                                            {"fast", AttentionMode::kFast},
                                            {"deterministic", AttentionMode::kDeterministic}}));
  job.max_gradient_norm = options.max_gradient_norm();
  job.nonfinite_step_limit = options.nonfinite_step_limit();
  MT_RETURN_IF_ERROR(CheckNumber("train.max_gradient_norm", options.max_gradient_norm(),
                                 options.max_gradient_norm() >= 0, "at least 0"));
  MT_RETURN_IF_ERROR(CheckNumber("train.nonfinite_step_limit",
                                 static_cast<double>(options.nonfinite_step_limit()),
                                 options.nonfinite_step_limit() >= 1, "at least 1"));
  MT_RETURN_IF_ERROR(SetOptimizer(options.optimizer(), job));
  return SetSchedule(options.schedule(), job);
}

absl::Status SetPlacement(const v1::PlacementOptions& options, TrainJob& job) {
  using Order = std::optional<MicroBatchOrder>;
  MT_ASSIGN_OR_RETURN(job.order,
                      Named<Order>("placement.order", options.order(),
                                   {{"", std::nullopt},
                                    {"auto", std::nullopt},
                                    {"layer_major", MicroBatchOrder::kLayerMajor},
                                    {"micro_batch_major", MicroBatchOrder::kMicroBatchMajor}}));
  job.weight_slot_count = options.weight_slot_count();
  job.resident_weights = options.resident_weights();
  MT_ASSIGN_OR_RETURN(job.pin, Named<PinMode>("placement.pin", options.pin(),
                                              {{"", PinMode::kAuto},
                                               {"auto", PinMode::kAuto},
                                               {"full", PinMode::kFull},
                                               {"slabs", PinMode::kSlabs}}));
  job.host_limit_bytes = options.host_limit_bytes();
  job.device_limit_bytes = options.hbm_limit_bytes();
  return absl::OkStatus();
}

// Paths of a job: absolute, or absent where that is allowed.
absl::Status CheckPath(const char* field, const std::string& path, bool may_be_empty) {
  if ((path.empty() && may_be_empty) || (!path.empty() && path[0] == '/')) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is \"", path, "\": it must be an absolute path"));
}

absl::Status SetPaths(const engine::v1::RunJobRequest& request, TrainJob& job) {
  job.model_path = request.model_path();
  job.data_path = request.data_path();
  job.output_path = request.output_path();
  job.save.folder = request.checkpoint_folder();
  job.start.resume_path = request.resume_checkpoint_path();
  job.start.weights_path = request.weights_checkpoint_path();
  job.evaluation.data_path = request.evaluation_data_path();
  job.model_fingerprint = request.model_fingerprint();
  job.data_fingerprint = request.data_fingerprint();
  job.evaluation.data_fingerprint = request.evaluation_data_fingerprint();
  MT_RETURN_IF_ERROR(CheckPath("model_path", job.model_path, false));
  MT_RETURN_IF_ERROR(CheckPath("data_path", job.data_path, false));
  MT_RETURN_IF_ERROR(CheckPath("output_path", job.output_path, false));
  MT_RETURN_IF_ERROR(CheckPath("checkpoint_folder", job.save.folder, true));
  MT_RETURN_IF_ERROR(CheckPath("resume_checkpoint_path", job.start.resume_path, true));
  MT_RETURN_IF_ERROR(CheckPath("weights_checkpoint_path", job.start.weights_path, true));
  MT_RETURN_IF_ERROR(CheckPath("evaluation_data_path", job.evaluation.data_path, true));
  if (!job.start.resume_path.empty() && !job.start.weights_path.empty()) {
    return absl::InvalidArgumentError(
        "resume_checkpoint_path and weights_checkpoint_path: at most one may be set");
  }
  return absl::OkStatus();
}

absl::Status SetSave(const v1::TrainingSpec& spec, TrainJob& job) {
  const v1::CheckpointOptions& options = spec.checkpoint();
  job.save.every_steps = options.every_steps();
  job.save.every = absl::Minutes(options.every_minutes());
  job.save.at_end = options.at_end();
  job.save.keep_count = options.keep_last();
  google::protobuf::util::JsonPrintOptions json;
  json.preserve_proto_field_names = true;
  if (!google::protobuf::util::MessageToJsonString(spec, &job.save.spec, json).ok()) {
    return absl::InvalidArgumentError("spec cannot be written as JSON");
  }
  const auto check = [](const char* field, int64_t value) {
    return CheckNumber(field, static_cast<double>(value), value >= 0, "at least 0");
  };
  MT_RETURN_IF_ERROR(check("checkpoint.every_steps", options.every_steps()));
  MT_RETURN_IF_ERROR(check("checkpoint.every_minutes", options.every_minutes()));
  return check("checkpoint.keep_last", options.keep_last());
}

absl::Status SetEvaluation(const v1::EvaluationOptions& options, TrainJob& job) {
  EvaluationOptions& evaluation = job.evaluation;
  evaluation.split = options.split();
  evaluation.every_steps = options.every_steps();
  evaluation.patience = options.early_stopping_patience();
  evaluation.min_delta = options.early_stopping_min_delta();
  MT_RETURN_IF_ERROR(CheckNumber("evaluation.split", options.split(),
                                 options.split() >= 0 && options.split() < 1,
                                 "at least 0 and below 1"));
  MT_RETURN_IF_ERROR(CheckNumber("evaluation.every_steps",
                                 static_cast<double>(options.every_steps()),
                                 options.every_steps() >= 0, "at least 0"));
  MT_RETURN_IF_ERROR(CheckNumber("evaluation.early_stopping_patience",
                                 static_cast<double>(options.early_stopping_patience()),
                                 options.early_stopping_patience() >= 0, "at least 0"));
  MT_RETURN_IF_ERROR(CheckNumber("evaluation.early_stopping_min_delta",
                                 options.early_stopping_min_delta(),
                                 options.early_stopping_min_delta() >= 0, "at least 0"));
  return evaluation.split > 0 && !evaluation.data_path.empty()
             ? absl::InvalidArgumentError("evaluation: only one of split and dataset may be set")
             : absl::OkStatus();
}

}  // namespace

absl::StatusOr<TrainJob> TrainJobFromProto(const engine::v1::RunJobRequest& request) {
  TrainJob job;
  MT_RETURN_IF_ERROR(SetPaths(request, job));
  MT_RETURN_IF_ERROR(SetTrain(request.spec().train(), job));
  MT_RETURN_IF_ERROR(SetPlacement(request.spec().placement(), job));
  MT_RETURN_IF_ERROR(SetSave(request.spec(), job));
  MT_RETURN_IF_ERROR(SetEvaluation(request.spec().evaluation(), job));
  return job;
}

SaveRequest SaveRequestFromProto(const engine::v1::SaveCheckpointRequest& request) {
  const CheckpointTrigger trigger =
      request.trigger() == v1::CHECKPOINT_TRIGGER_PAUSE     ? CheckpointTrigger::kPause
      : request.trigger() == v1::CHECKPOINT_TRIGGER_DRAIN   ? CheckpointTrigger::kDrain
      : request.trigger() == v1::CHECKPOINT_TRIGGER_PREEMPT ? CheckpointTrigger::kPreempt
                                                            : CheckpointTrigger::kManual;
  return {.trigger = trigger, .then_stop = request.then_stop()};
}

engine::v1::Started StartedToProto(const Plan& plan, int64_t step_count, int64_t first_step) {
  engine::v1::Started started;
  started.set_planned_step_count(step_count);
  *started.mutable_plan() = PlanToProto(plan);
  started.mutable_plan()->set_step_count(step_count);
  started.set_resumed_step(first_step);
  return started;
}

v1::StepRecord StepRecordToProto(const StepReport& report, absl::Time end_time) {
  v1::StepRecord record;
  record.set_step(report.step);
  record.set_loss(report.loss);
  record.set_gradient_norm(report.gradient_norm);
  record.set_learning_rate(report.learning_rate);
  record.set_token_count(report.token_count);
  record.set_loss_token_count(report.loss_token_count);
  record.set_step_seconds(absl::ToDoubleSeconds(report.duration));
  record.set_skipped(report.skipped);
  *record.mutable_end_time() = TimestampOf(end_time);
  return record;
}

engine::v1::StreamFigures StreamFiguresToProto(const AllStreamFigures& figures,
                                               const ProcessMemory& memory) {
  engine::v1::StreamFigures result;
  for (const StreamKind kind : kAllStreams) {
    const StreamFigures& stream = figures[static_cast<size_t>(kind)];
    engine::v1::StreamFigure* added = result.add_streams();
    added->set_stream(std::string(StreamName(kind)));
    added->set_busy_seconds(absl::ToDoubleSeconds(stream.busy));
    for (const WaitReason reason : kAllWaitReasons) {
      (*added->mutable_wait_seconds())[std::string(WaitReasonName(reason))] =
          absl::ToDoubleSeconds(stream.wait(reason));
    }
    added->set_operation_count(stream.operation_count);
  }
  result.set_resident_bytes(memory.resident_bytes);
  result.set_peak_host_bytes(memory.peak_resident_bytes);
  return result;
}

engine::v1::CheckpointSaved CheckpointToProto(const CheckpointReport& report) {
  engine::v1::CheckpointSaved saved;
  saved.set_checkpoint_id(report.id);
  saved.set_step(report.step);
  saved.set_trigger(TriggerToProto(report.trigger));
  saved.set_size_bytes(report.size_bytes);
  saved.set_save_seconds(absl::ToDoubleSeconds(report.save));
  saved.set_stall_seconds(absl::ToDoubleSeconds(report.stall));
  return saved;
}

v1::CheckpointFailure CheckpointFailureToProto(const CheckpointFailure& failure) {
  v1::CheckpointFailure result;
  result.set_step(failure.step);
  result.set_trigger(TriggerToProto(failure.trigger));
  result.mutable_reason()->set_code(absl::IsResourceExhausted(failure.status)  ? "DISK_FULL"
                                    : absl::IsDeadlineExceeded(failure.status) ? "DISK_STALLED"
                                                                               : "DISK_FAILED");
  result.mutable_reason()->set_message(std::string(failure.status.message()));
  return result;
}

v1::EvaluationRecord EvaluationToProto(const EvaluationReport& report, absl::Time end_time) {
  v1::EvaluationRecord record;
  record.set_step(report.step);
  record.set_loss(report.loss);
  record.set_loss_token_count(report.loss_token_count);
  record.set_evaluation_seconds(absl::ToDoubleSeconds(report.duration));
  *record.mutable_end_time() = TimestampOf(end_time);
  return record;
}

engine::v1::RunJobEvent EndToProto(const absl::StatusOr<TrainResult>& result) {
  engine::v1::RunJobEvent event;
  if (!result.ok()) {
    *event.mutable_failed() = ReasonToProto(result.status());
  } else if (result->paused_checkpoint.empty()) {
    event.mutable_finished()->set_peak_host_bytes(result->peak_host_bytes);
    event.mutable_finished()->set_stopped_early(result->stopped_early);
  } else {
    event.mutable_paused()->set_checkpoint_id(result->paused_checkpoint);
    event.mutable_paused()->set_peak_host_bytes(result->peak_host_bytes);
  }
  return event;
}

v1::JobReason ReasonToProto(const absl::Status& status) {
  v1::JobReason reason;
  reason.set_code(IsCorruptCheckpoint(status)      ? "CHECKPOINT_CORRUPT"
                  : IsUnreadableCheckpoint(status) ? "CHECKPOINT_UNREADABLE"
                                                   : absl::StatusCodeToString(status.code()));
  reason.set_message(std::string(status.message()));
  return reason;
}

}  // namespace megatrain
