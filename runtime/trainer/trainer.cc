#include "runtime/trainer/trainer.h"

#include <malloc.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/load_checkpoint.h"
#include "runtime/checkpoint/state_files.h"
#include "runtime/checkpoint/write_checkpoint.h"
#include "runtime/config/model_layout.h"
#include "runtime/data/batch_reader.h"
#include "runtime/model_io/export_model.h"
#include "runtime/model_io/load_model.h"
#include "runtime/planner/machine.h"
#include "runtime/trainer/host_memory.h"
#include "runtime/trainer/job_evaluator.h"
#include "runtime/trainer/job_saver.h"
#include "runtime/trainer/warm_up.h"
#include "runtime/trainer/watchdog.h"

namespace megatrain {
namespace {

// The rows that the plan cuts a step into, where the job leaves that to it.
BatchOptions CutAsPlanned(BatchOptions batches, const Plan& plan) {
  batches.micro_batch_rows = plan.micro_batch_rows;
  return batches;
}

// Rows to evaluate the job on: those set aside of its data, or all of others.
JobEvaluator::Rows ValidationRows(const TrainJob& job, const JobInputs& inputs,
                                  BatchOptions batches) {
  if (inputs.validation != nullptr) {
    batches.held_out_split = 0;
    return {.data = inputs.validation.get(), .batches = batches, .part = RowPart::kTraining};
  }
  return {.data = job.evaluation.split > 0 ? inputs.data.get() : nullptr,
          .batches = batches,
          .part = RowPart::kHeldOut};
}

// First of all: the checkpoint that the job goes on from may be the one that a dead attempt was
// about to replace.
absl::Status CleanFolder(const SaveOptions& save, FileSystem& files) {
  const absl::Status cleaned =
      save.folder.empty() ? absl::OkStatus() : CleanCheckpointFolder(save.folder, files);
  return absl::IsNotFound(cleaned) ? absl::OkStatus() : cleaned;
}

// Before anything is allocated: the disk has room for the checkpoints that are to be kept, and for
// one more while they are replaced.
absl::Status CheckFolder(const SaveOptions& save, const std::vector<int64_t>& unit_elements,
                         FileSystem& files) {
  const bool saves = save.every_steps > 0 || save.every > absl::ZeroDuration() || save.at_end;
  if (save.folder.empty() || !saves) {
    return absl::OkStatus();
  }
  MT_RETURN_IF_ERROR(files.MakeFolders(save.folder));
  MT_ASSIGN_OR_RETURN(const CheckpointListing there, ListCheckpoints(save.folder, files));
  // A job that goes on has some, and old ones make room for new ones.
  const int64_t to_come = there.valid.empty() ? save.keep_count + 1 : 1;
  return CheckRoomForCheckpoints(save.folder, to_come * CheckpointBytesOnDisk(unit_elements),
                                 files);
}

// How far the job is that goes on from `start`. A fork of one that stopped early is made to train
// on; a job's own checkpoint keeps that it has stopped.
TrainingProgress ProgressAt(const Checkpoint& start, const std::string& own_folder) {
  TrainingProgress progress = start.manifest.progress;
  const bool is_fork = std::filesystem::path(start.path).parent_path() != own_folder;
  if (is_fork && progress.stopped_early) {
    progress.stopped_early = false;
    progress.evaluations_without_gain = 0;
  }
  return progress;
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

absl::StatusOr<Plan> Trainer::PlanOf(const TrainJob& job, const JobInputs& inputs) {
  const PreparedDataInfo& data = inputs.data->info();
  const BatchOptions batches = BatchesOf(job, inputs);
  const PreparedDataInfo validation = inputs.validation != nullptr ? inputs.validation->info()
                                      : job.evaluation.split > 0   ? data
                                                                   : PreparedDataInfo{};
  MT_ASSIGN_OR_RETURN(const HostMemory free, ReadAvailableHostMemory(""));
  MT_ASSIGN_OR_RETURN(const ProcessMemory held, ReadProcessMemory(""));
  MT_ASSIGN_OR_RETURN(const ComputeBackend::DeviceMemory device, parts_.backend.ReadDeviceMemory());
  const MachineProfile machine{
      .backend = parts_.backend.kind(),
      .host_available_bytes = free.available_bytes + held.resident_bytes,
      .device_memory_bytes =
          PipelineDeviceBytes(device.total_bytes, device.free_bytes, /*limit_bytes=*/0),
      .device_overhead_bytes = DeviceOverheadBytes(device.total_bytes, device.free_bytes),
      .engine_baseline_bytes = std::max(baseline_bytes_, held.resident_bytes),
      .speeds = parts_.speeds};
  const JobShape shape{
      .batch_rows = batches.batch_rows,
      .micro_batch_rows = batches.micro_batch_rows,
      .max_sequence_length = batches.max_sequence_length,
      .longest_row_tokens = std::max(data.longest_row_tokens, validation.longest_row_tokens),
      .row_count = data.row_count,
      .validation_row_count = validation.row_count,
      .packing = batches.packing,
      .compute_dtype = job.compute_dtype,
      .attention = job.attention,
      .order = job.order,
      .weight_slot_count = job.weight_slot_count,
      .resident_weights = job.resident_weights,
      .pin = job.pin,
      .host_limit_bytes = job.host_limit_bytes,
      .device_limit_bytes = job.device_limit_bytes};
  return PlanJob(inputs.model->config(), shape, machine);
}

absl::StatusOr<std::unique_ptr<ModelSession>> Trainer::StartSession(const TrainJob& job,
                                                                    const JobInputs& inputs,
                                                                    const Plan& plan,
                                                                    JobProgress& progress) {
  MT_ASSIGN_OR_RETURN(
      std::unique_ptr<ModelSession> session,
      ModelSession::Create(
          inputs.model->config(),
          {.optimizer_threads = optimizer_threads_,
           .templates = {.dtype = job.compute_dtype,
                         .attention = job.attention,
                         .limits = plan.limits,
                         .log = [&progress](const std::string& line) { progress.Log(line); }},
           .host_gradients = HostGradients(plan.pipeline)},
          parts_.backend, parts_.clock));
  MT_RETURN_IF_ERROR(PrepareMemory(*session, progress));
  progress.Begin(TrainPhase::kLoading);
  MT_RETURN_IF_ERROR(LoadState(job, inputs, *session, progress));
  MT_RETURN_IF_ERROR(PinMemory(*session, plan.pipeline, progress));
  MT_RETURN_IF_ERROR(StartPipeline(*session, plan.pipeline, progress));
  return session;
}

absl::Status Trainer::LoadState(const TrainJob& job, const JobInputs& inputs, ModelSession& session,
                                JobProgress& progress) {
  const ByteProgress loading = progress.FollowUntilStop(TrainPhase::kLoading);
  if (!inputs.checkpoint.has_value()) {
    return LoadModel(*inputs.model, session.layout(), session.store(), loading);
  }
  const LoadedState loaded =
      job.start.resume_path.empty() ? LoadedState::kWeights : LoadedState::kEverything;
  return MarkUnusableCheckpoint(LoadCheckpoint(*inputs.checkpoint, loaded, session.layout(),
                                               session.store(), parts_.files, loading));
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
  MT_RETURN_IF_ERROR(CleanFolder(job.save, parts_.files));
  MT_ASSIGN_OR_RETURN(const JobInputs inputs, OpenJobInputs(job, parts_.files));
  MT_ASSIGN_OR_RETURN(const Plan plan, PlanOf(job, inputs));
  if (!plan.fits) {
    return absl::ResourceExhaustedError(plan.verdict);
  }
  MT_RETURN_IF_ERROR(Announce(job, inputs, plan, observer));
  watchdog.RaiseGenerousLimit(FirstStepLimit(plan, inputs.model->config()));
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<ModelSession> session,
                      StartSession(job, inputs, plan, progress));
  const Watchdog::PipelineWatch watch(watchdog, session->pipeline());
  const Running running{.job = job,
                        .inputs = inputs,
                        .plan = plan,
                        .session = *session,
                        .progress = progress,
                        .observer = observer,
                        .watchdog = watchdog};
  MT_ASSIGN_OR_RETURN(const LoopEnd end, Train(running));
  MT_ASSIGN_OR_RETURN(const ProcessMemory memory, ReadProcessMemory(""));
  return TrainResult{.step_count = end.progress.step,
                     .peak_host_bytes = memory.peak_resident_bytes,
                     .stopped_early = end.progress.stopped_early,
                     .paused_checkpoint = end.paused ? end.last_checkpoint : ""};
}

// Tells what the job is going to do, once nothing speaks against it any more.
absl::Status Trainer::Announce(const TrainJob& job, const JobInputs& inputs, const Plan& plan,
                               TrainObserver& observer) {
  const BatchOptions batches = CutAsPlanned(BatchesOf(job, inputs), plan);
  MT_ASSIGN_OR_RETURN(const BatchReader reader, BatchReader::Create(*inputs.data, batches));
  int64_t first_step = 0;
  if (!job.start.resume_path.empty()) {
    MT_RETURN_IF_ERROR(CheckResumable(*inputs.checkpoint, OrderOf(job, batches, inputs)));
    first_step = inputs.checkpoint->manifest.progress.step;
    if (first_step > reader.step_count()) {
      return absl::FailedPreconditionError(absl::StrCat("cannot go on from ", inputs.checkpoint->id,
                                                        ": the job has only ", reader.step_count(),
                                                        " steps"));
    }
  }
  MT_RETURN_IF_ERROR(
      CheckFolder(job.save, UnitElements(MakeModelLayout(inputs.model->config())), parts_.files));
  observer.OnPlanned(plan, reader.step_count(), first_step);
  observer.OnLogLine(absl::StrCat("the plan ", plan.verdict));
  if (inputs.checkpoint.has_value()) {
    observer.OnLogLine(
        absl::StrCat(job.start.resume_path.empty() ? "takes the weights of " : "goes on from ",
                     inputs.checkpoint->path));
  }
  return absl::OkStatus();
}

absl::StatusOr<LoopEnd> Trainer::Train(const Running& running) {
  const TrainJob& job = running.job;
  const JobInputs& inputs = running.inputs;
  StepPipeline& pipeline = running.session.pipeline();
  const BatchOptions batches = CutAsPlanned(BatchesOf(job, inputs), running.plan);
  MT_ASSIGN_OR_RETURN(BatchReader reader, BatchReader::Create(*inputs.data, batches));
  CheckpointManifest form{.order = OrderOf(job, batches, inputs),
                          .schedule = job.schedule,
                          .unit_elements = UnitElements(running.session.layout()),
                          .spec = job.save.spec};
  form.schedule.total_steps = reader.step_count();
  if (!job.start.resume_path.empty()) {
    form.progress = ProgressAt(*inputs.checkpoint, job.save.folder);
    pipeline.set_update_count(form.progress.update_count);
  }
  reader.Seek(form.progress.step);
  running.progress.Begin(TrainPhase::kTraining);
  JobEvaluator evaluator({.clock = parts_.clock,
                          .pipeline = pipeline,
                          .progress = running.progress,
                          .observer = running.observer},
                         job.evaluation, ValidationRows(job, inputs, batches));
  JobSaver saver({.files = parts_.files,
                  .clock = parts_.clock,
                  .session = running.session,
                  .progress = running.progress,
                  .observer = running.observer},
                 job.save, form, inputs.log);
  MT_ASSIGN_OR_RETURN(LoopEnd end, RunTrainingLoop(job,
                                                   {.clock = parts_.clock,
                                                    .reader = reader,
                                                    .pipeline = pipeline,
                                                    .evaluator = evaluator,
                                                    .saver = saver,
                                                    .observer = running.observer,
                                                    .watchdog = running.watchdog},
                                                   form.progress));
  MT_RETURN_IF_ERROR(LogDeviceMemory(parts_.backend, running.plan, running.observer));
  return end.paused ? std::move(end) : Export(running, saver, std::move(end));
}

absl::StatusOr<LoopEnd> Trainer::Export(const Running& running, JobSaver& saver, LoopEnd end) {
  absl::Status status = TryExport(running, end.progress.step);
  // Without a folder for checkpoints nobody could ask for anything.
  while (!status.ok() && !absl::IsCancelled(status) && !running.job.save.folder.empty()) {
    MT_ASSIGN_OR_RETURN(const SaveRequest request, saver.Hold({.step = end.progress.step,
                                                               .trigger = CheckpointTrigger::kFinal,
                                                               .status = status}));
    if (request.then_stop) {
      MT_RETURN_IF_ERROR(saver.Save(end.progress, request, parts_.clock.MonotonicNow()).status());
      end.paused = true;
      end.last_checkpoint = saver.last_id();
      return end;
    }
    status = TryExport(running, end.progress.step);
  }
  MT_RETURN_IF_ERROR(status);
  return end;
}

absl::Status Trainer::TryExport(const Running& running, int64_t step) {
  if (running.observer.StopRequested()) {
    return absl::CancelledError("the job was asked to stop before its export");
  }
  running.progress.Begin(TrainPhase::kExporting);
  // Nothing was there when the job began: what is, an earlier try has left.
  MT_RETURN_IF_ERROR(parts_.files.RemoveTree(running.job.output_path));
  return ExportModel(*running.inputs.model, running.session.layout(), running.session.store(),
                     running.job.output_path, parts_.files,
                     running.progress.FollowWrite(
                         TrainPhase::kExporting,
                         {.step = step, .trigger = CheckpointTrigger::kFinal, .status = {}}));
}

}  // namespace megatrain
