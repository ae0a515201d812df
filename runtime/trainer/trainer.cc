#include "runtime/trainer/trainer.h"

#include <malloc.h>

#include <algorithm>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/model_io/export_model.h"
#include "runtime/model_io/load_model.h"
#include "runtime/planner/machine.h"
#include "runtime/trainer/host_memory.h"
#include "runtime/trainer/training_loop.h"
#include "runtime/trainer/warm_up.h"
#include "runtime/trainer/watchdog.h"

namespace megatrain {
namespace {

absl::Status CheckVocabulary(const PreparedDataInfo& data, const ModelConfig& config) {
  if (data.largest_token < config.vocab_size) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the data holds token ", data.largest_token, " but the model's vocabulary ends at ",
      config.vocab_size - 1, ": prepare the data with this model's tokenizer"));
}

// The rows that the plan cuts a step into, where the job leaves that to it.
BatchOptions CutAsPlanned(BatchOptions batches, const Plan& plan) {
  batches.micro_batch_rows = plan.micro_batch_rows;
  return batches;
}

// What the job's log says of a GPU's memory at its highest: all of a job's is taken before the
// first step, and none is given back in one.
absl::Status LogDeviceMemory(ComputeBackend& backend, const Plan& plan, TrainObserver& observer) {
  MT_ASSIGN_OR_RETURN(const ComputeBackend::DeviceMemory memory, backend.ReadDeviceMemory());
  if (memory.total_bytes > 0) {
    observer.OnLogLine(absl::StrCat(
        "GPU memory: at most ", FormatBytes(memory.total_bytes - memory.free_bytes),
        " in use, libraries and other programs included; plan ", FormatBytes(plan.device_bytes)));
  }
  return absl::OkStatus();
}

// While no step has told how long it takes, and in long work of the job's own thread, a job may
// stand still for so long: a disk far away, and all that the first use of a library takes.
constexpr absl::Duration kGenerousLimit = absl::Minutes(10);

// No processor is so slow.
constexpr double kLeastFlopsPerSecond = 1e9;

// For how long an operation of the first step may take: many predicted steps, or, where none is
// predicted, forward and backward of a micro-batch in a layer on a slow processor.
absl::Duration FirstStepLimit(const Plan& plan, const ModelConfig& config) {
  if (plan.predicted.seconds > 0) {
    return Watchdog::kStepFactor * absl::Seconds(plan.predicted.seconds);
  }
  const double layer_flops = 6.0 * static_cast<double>(plan.active_parameter_count) *
                             static_cast<double>(plan.limits.tokens) /
                             static_cast<double>(config.layer_count);
  return absl::Seconds(layer_flops / kLeastFlopsPerSecond);
}

}  // namespace

Trainer::Trainer(const Parts& parts, int optimizer_threads)
    : parts_(parts), optimizer_threads_(optimizer_threads) {}

absl::Status Trainer::WarmUp() {
  MT_RETURN_IF_ERROR(WarmUpLibraries(parts_.backend, optimizer_threads_, parts_.clock));
  malloc_trim(0);
  MT_ASSIGN_OR_RETURN(const ProcessMemory memory, ReadProcessMemory(""));
  baseline_bytes_ = memory.resident_bytes;
  return absl::OkStatus();
}

absl::StatusOr<Plan> Trainer::PlanOf(const TrainJob& job, const ModelConfig& config,
                                     const PreparedDataInfo& data) {
  MT_ASSIGN_OR_RETURN(const HostMemory free, ReadAvailableHostMemory(""));
  MT_ASSIGN_OR_RETURN(const ProcessMemory held, ReadProcessMemory(""));
  MT_ASSIGN_OR_RETURN(const ComputeBackend::DeviceMemory device, parts_.backend.ReadDeviceMemory());
  const MachineProfile machine{
      .backend = parts_.backend.kind(),
      .host_available_bytes = free.available_bytes + held.resident_bytes,
      .device_memory_bytes =
          PipelineDeviceBytes(device.total_bytes, device.free_bytes, job.device_limit_bytes),
      .engine_baseline_bytes = std::max(baseline_bytes_, held.resident_bytes),
      .speeds = parts_.speeds};
  const JobShape shape{.batch_rows = job.batches.batch_rows,
                       .micro_batch_rows = job.batches.micro_batch_rows,
                       .max_sequence_length = job.batches.max_sequence_length,
                       .longest_row_tokens = data.longest_row_tokens,
                       .row_count = data.row_count,
                       .packing = job.batches.packing,
                       .compute_dtype = job.compute_dtype,
                       .attention = job.attention,
                       .order = job.order,
                       .weight_slot_count = job.weight_slot_count,
                       .resident_weights = job.resident_weights,
                       .host_limit_bytes = job.host_limit_bytes,
                       .device_limit_bytes = job.device_limit_bytes};
  return PlanJob(config, shape, machine);
}

absl::StatusOr<std::unique_ptr<ModelSession>> Trainer::StartSession(const TrainJob& job,
                                                                    const ModelFolder& folder,
                                                                    const Plan& plan,
                                                                    JobProgress& progress) {
  MT_ASSIGN_OR_RETURN(std::unique_ptr<ModelSession> session,
                      ModelSession::Create(folder.config(),
                                           {.optimizer_threads = optimizer_threads_,
                                            .templates = {.dtype = job.compute_dtype,
                                                          .attention = job.attention,
                                                          .limits = plan.limits}},
                                           parts_.backend, parts_.clock));
  MT_RETURN_IF_ERROR(PrepareMemory(*session, progress));
  progress.Begin(TrainPhase::kLoading);
  MT_RETURN_IF_ERROR(LoadModel(folder, session->layout(), session->store(),
                               progress.FollowUntilStop(TrainPhase::kLoading)));
  MT_RETURN_IF_ERROR(PinMemory(*session, plan.pipeline, progress));
  MT_RETURN_IF_ERROR(session->StartPipeline(plan.pipeline));
  return session;
}

absl::StatusOr<TrainResult> Trainer::Run(const TrainJob& job, TrainObserver& observer) {
  absl::StatusOr<TrainResult> result = RunJob(job, observer);
  malloc_trim(0);  // what the job freed goes back to the system, for the next plan and for others
  return result;
}

absl::StatusOr<TrainResult> Trainer::RunJob(const TrainJob& job, TrainObserver& observer) {
  if (const absl::Status reset = ResetPeakResident(); !reset.ok()) {
    observer.OnLogLine(
        absl::StrCat("the peak of memory counts earlier jobs too: ", std::string(reset.message())));
  }
  Watchdog watchdog(parts_.clock, kGenerousLimit,
                    [&observer](const std::string& what) { observer.OnStall(what); });
  JobProgress progress(parts_.clock, observer, watchdog);
  progress.Begin(TrainPhase::kLoading);
  if (parts_.files.Exists(job.output_path)) {
    return absl::InvalidArgumentError(absl::StrCat(job.output_path, ": exists already"));
  }
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<ModelFolder> folder,
                      ModelFolder::Open(job.model_path, parts_.files));
  const ModelConfig& config = folder->config();
  MT_RETURN_IF_ERROR(CheckTrainable(config));
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<PreparedData> data, PreparedData::Open(job.data_path));
  MT_RETURN_IF_ERROR(CheckVocabulary(data->info(), config));
  MT_ASSIGN_OR_RETURN(const Plan plan, PlanOf(job, config, data->info()));
  if (!plan.fits) {
    return absl::ResourceExhaustedError(plan.verdict);
  }
  MT_ASSIGN_OR_RETURN(BatchReader reader,
                      BatchReader::Create(*data, CutAsPlanned(job.batches, plan)));
  observer.OnPlanned(plan, reader.step_count());
  observer.OnLogLine(absl::StrCat("the plan ", plan.verdict));
  watchdog.RaiseGenerousLimit(FirstStepLimit(plan, config));

  MT_ASSIGN_OR_RETURN(const std::unique_ptr<ModelSession> session,
                      StartSession(job, *folder, plan, progress));
  progress.Begin(TrainPhase::kTraining);
  const Watchdog::PipelineWatch watch(watchdog, session->pipeline());
  MT_RETURN_IF_ERROR(
      RunTrainingLoop(job, parts_.clock, reader, session->pipeline(), observer, watchdog));
  MT_RETURN_IF_ERROR(LogDeviceMemory(parts_.backend, plan, observer));
  if (observer.StopRequested()) {
    return absl::CancelledError("the job was asked to stop before its export");
  }
  progress.Begin(TrainPhase::kExporting);
  MT_RETURN_IF_ERROR(ExportModel(*folder, session->layout(), session->store(), job.output_path,
                                 parts_.files, progress.Follow(TrainPhase::kExporting)));
  MT_ASSIGN_OR_RETURN(const ProcessMemory memory, ReadProcessMemory(""));
  return TrainResult{reader.step_count(), memory.peak_resident_bytes};
}

}  // namespace megatrain
