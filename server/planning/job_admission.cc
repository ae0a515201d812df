#include "server/planning/job_admission.h"

#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/checkpoint/save_prediction.h"
#include "runtime/checkpoint/state_files.h"
#include "runtime/checkpoint/write_checkpoint.h"
#include "runtime/config/model_layout.h"
#include "runtime/planner/operation_costs.h"
#include "runtime/planner/plan_explanation.h"
#include "runtime/planner/planner.h"
#include "server/errors/errors.h"
#include "server/jobs/training_spec.h"
#include "server/planning/plan_conversion.h"

namespace megatrain {
namespace {

// ParseModelConfig refuses longer text anyway.
constexpr int64_t kMaxConfigBytes = int64_t{1} << 20;

std::map<std::string, std::string> Numbers(const v1::Plan& plan) {
  std::map<std::string, std::string> numbers = {
      {"host_bytes", absl::StrCat(plan.host_bytes())},
      {"host_available_bytes", absl::StrCat(plan.host_available_bytes())},
      {"device_bytes", absl::StrCat(plan.device_bytes())},
      {"device_available_bytes", absl::StrCat(plan.device_available_bytes())}};
  for (const v1::MemoryItem& item : plan.host()) {
    numbers[absl::StrCat("host_", item.kind(), "_bytes")] = absl::StrCat(item.size_bytes());
  }
  for (const v1::MemoryItem& item : plan.device()) {
    numbers[absl::StrCat("device_", item.kind(), "_bytes")] = absl::StrCat(item.size_bytes());
  }
  return numbers;
}

absl::Status CheckPlan(const v1::Plan& plan, const std::string& model) {
  if (!plan.trainable()) {
    return PreconditionFailed(model, "MODEL_NOT_TRAINABLE", plan.verdict(), {{"model", model}});
  }
  if (plan.fits()) {
    return absl::OkStatus();
  }
  const bool host_fits = plan.host_bytes() <= plan.host_available_bytes();
  return PreconditionFailed(model, host_fits ? "DEVICE_MEMORY_EXCEEDED" : "HOST_MEMORY_EXCEEDED",
                            plan.verdict(), Numbers(plan));
}

// A length that nobody asked for is one that the model has positions for.
void FitLength(int64_t asked, const ModelConfig& config, v1::TrainOptions& train) {
  if (asked == 0 && config.max_positions > 0) {
    train.set_max_sequence_length(
        std::min<int64_t>(train.max_sequence_length(), config.max_positions));
  }
}

void AddCheckpoint(const ModelConfig& config, const MachineProfile& machine,
                   const megatrain::Plan& planned, v1::Plan& plan) {
  const SaveLoad load{
      .checkpoint_bytes = CheckpointBytesOnDisk(UnitElements(PlanningLayout(config))),
      .device_state_bytes = planned.device_state_bytes,
      .disk_bytes_per_second = static_cast<double>(machine.disk_write_bytes_per_second),
      .bus_bytes_per_second = machine.speeds.bus_down_bytes,
      .drain_seconds = planned.predicted.busy_seconds[static_cast<size_t>(Resource::kHostUpdates)]};
  plan.set_checkpoint_bytes(load.checkpoint_bytes);
  if (load.disk_bytes_per_second > 0) {
    plan.set_checkpoint_seconds(static_cast<double>(load.checkpoint_bytes) /
                                load.disk_bytes_per_second);
    plan.set_checkpoint_stall_seconds(PredictSaveStallSeconds(load));
  }
}

std::vector<FieldViolation> CheckLength(const v1::TrainingSpec& spec, const ModelConfig& config) {
  const int64_t length = spec.train().max_sequence_length();
  if (config.max_positions <= 0 || length <= config.max_positions) {
    return {};
  }
  return {{"spec.train.max_sequence_length",
           absl::StrCat(length, " is more than the model's ", config.max_positions, " positions")}};
}

}  // namespace

absl::StatusOr<v1::Plan> JobAdmission::Admit(v1::TrainingSpec& spec,
                                             const std::string& output) const {
  const int64_t asked_length = spec.train().max_sequence_length();
  MT_RETURN_IF_ERROR(InvalidFields(
      CompleteTrainingSpec(spec, {output, parts_.compute_dtype}, /*for_plan=*/false)));
  MT_ASSIGN_OR_RETURN(const v1::ModelVersion model, FindModel(spec.model()));
  MT_ASSIGN_OR_RETURN(const v1::Dataset dataset, FindDataset(spec.dataset()));
  if (!spec.evaluation().dataset().empty()) {
    MT_RETURN_IF_ERROR(FindDataset(spec.evaluation().dataset()).status());
  }
  spec.set_model(model.name());
  if (!model.trainable()) {
    return PreconditionFailed(model.name(), "MODEL_NOT_TRAINABLE",
                              absl::StrCat(model.name(), " (", model.architecture(),
                                           ") cannot be trained yet: ", model.failure()),
                              {{"model", model.name()}, {"architecture", model.architecture()}});
  }
  MT_ASSIGN_OR_RETURN(const ModelConfig config, ReadConfig(model.path()));
  FitLength(asked_length, config, *spec.mutable_train());
  MT_RETURN_IF_ERROR(InvalidFields(CheckLength(spec, config)));
  MT_ASSIGN_OR_RETURN(const MachineProfile machine, parts_.machine());
  JobShape shape = JobShapeOf(spec);
  shape.row_count = dataset.row_count();
  const megatrain::Plan planned = PlanJob(config, shape, machine);
  v1::Plan plan = PlanToProto(planned);
  plan.set_step_count(spec.train().steps());
  AddCheckpoint(config, machine, planned, plan);
  MT_RETURN_IF_ERROR(CheckPlan(plan, model.name()));
  MT_RETURN_IF_ERROR(CheckRoom(spec.checkpoint(), plan.checkpoint_bytes()));
  return plan;
}

absl::StatusOr<v1::Plan> JobAdmission::Plan(v1::TrainingSpec spec,
                                            const std::string& model_config_json,
                                            const std::string& machine_text) const {
  MT_ASSIGN_OR_RETURN(const Machine machine, FindMachine(machine_text));
  const std::string compute_dtype = machine_text.empty() ? parts_.compute_dtype
                                    : machine.profile.backend == Backend::kCuda ? "bf16"
                                                                                : "fp32";
  const int64_t asked_length = spec.train().max_sequence_length();
  ModelConfig config;
  if (!model_config_json.empty()) {
    spec.set_model("models/none");  // not read, but a form is wanted
    MT_ASSIGN_OR_RETURN(config, ParseModelConfig(model_config_json));
  }
  MT_RETURN_IF_ERROR(
      InvalidFields(CompleteTrainingSpec(spec, {"models/none", compute_dtype}, /*for_plan=*/true)));
  if (model_config_json.empty()) {
    MT_ASSIGN_OR_RETURN(const v1::ModelVersion model, FindModel(spec.model()));
    MT_ASSIGN_OR_RETURN(config, ReadConfig(model.path()));
  }
  FitLength(asked_length, config, *spec.mutable_train());
  MT_RETURN_IF_ERROR(InvalidFields(CheckLength(spec, config)));
  const JobShape shape = JobShapeOf(spec);
  const megatrain::Plan plan = PlanJob(config, shape, machine.profile);
  v1::Plan result = PlanToProto(plan);
  ExplanationToProto(ExplainPlan(config, shape, machine.profile, plan), result);
  AddCheckpoint(config, machine.profile, plan, result);
  result.set_machine(MachineInWords(machine));
  result.set_step_count(spec.train().steps());
  return result;
}

absl::StatusOr<Machine> JobAdmission::FindMachine(const std::string& machine) const {
  if (!machine.empty()) {
    MT_ASSIGN_OR_RETURN(Machine found,
                        machine.front() == '{' ? ParseMachine(machine) : MachineByName(machine));
    const MachineProfile& profile = found.profile;
    if (profile.host_available_bytes == 0 ||
        (profile.backend == Backend::kCuda && profile.device_memory_bytes == 0)) {
      return absl::InvalidArgumentError(
          "machine: a plan needs its host_available_bytes, and of a GPU device_memory_bytes; what "
          "an engine keeps of its own machine has neither: add them");
    }
    return found;
  }
  MT_ASSIGN_OR_RETURN(const MachineProfile profile, parts_.machine());
  return Machine{.name = "this server's", .profile = profile};
}

absl::Status JobAdmission::CheckRoom(const v1::CheckpointOptions& options,
                                     int64_t checkpoint_bytes) const {
  // The oldest one goes when the next is committed. Without a period there is that of a pause.
  const bool is_periodic = options.every_steps() > 0 || options.every_minutes() > 0;
  const int64_t count = is_periodic ? options.keep_last() + 1 : 1;
  MT_ASSIGN_OR_RETURN(const int64_t available_bytes,
                      parts_.disk.AvailableBytes(parts_.checkpoints_folder));
  if (available_bytes / count >= checkpoint_bytes) {
    return absl::OkStatus();
  }
  return PreconditionFailed(
      "spec.checkpoint", "DISK_SPACE_EXCEEDED",
      absl::StrCat("checkpoints do not fit: there must be room for ", count, " of ",
                   FormatBytes(checkpoint_bytes), " in ", parts_.checkpoints_folder, ", which has ",
                   FormatBytes(available_bytes),
                   "; make room, lower checkpoint.keep_last, or set checkpoint.every_minutes to 0"),
      {{"checkpoint_bytes", absl::StrCat(checkpoint_bytes)},
       {"checkpoint_count", absl::StrCat(count)},
       {"available_bytes", absl::StrCat(available_bytes)}});
}

absl::StatusOr<ModelConfig> JobAdmission::ReadConfig(const std::string& model_path) const {
  MT_ASSIGN_OR_RETURN(
      const std::string json,
      parts_.disk.ReadFile(absl::StrCat(model_path, "/config.json"), kMaxConfigBytes));
  return ParseModelConfig(json);
}

absl::StatusOr<v1::ModelVersion> JobAdmission::FindModel(const std::string& name) const {
  MT_ASSIGN_OR_RETURN(v1::ModelVersion model, parts_.models.Get(name));
  if (model.state() != v1::MODEL_STATE_READY) {
    return PreconditionFailed(
        model.name(), "MODEL_NOT_READY",
        absl::StrCat(model.name(), " is not READY",
                     model.failure().empty() ? ": wait for its import"
                                             : absl::StrCat(": ", model.failure())),
        {{"model", model.name()}});
  }
  return model;
}

absl::StatusOr<v1::Dataset> JobAdmission::FindDataset(const std::string& name) const {
  MT_ASSIGN_OR_RETURN(v1::Dataset dataset, parts_.datasets.Get(name));
  if (dataset.state() == v1::DATASET_STATE_READY) {
    return dataset;
  }
  return PreconditionFailed(
      name, "DATASET_NOT_READY",
      absl::StrCat(name, " is not READY",
                   dataset.failure().empty() ? ": wait for its check"
                                             : absl::StrCat(": ", dataset.failure())),
      {{"dataset", name}});
}

}  // namespace megatrain
