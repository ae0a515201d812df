#include "runtime/trainer/job_saver.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/status_macros.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/save_prediction.h"
#include "runtime/planner/planner.h"

namespace megatrain {

JobSaver::JobSaver(const Parts& parts, const SaveOptions& options, CheckpointManifest form,
                   TrainingLog log)
    : parts_(parts),
      options_(options),
      form_(std::move(form)),
      log_(std::move(log)),
      saved_step_(form_.progress.step),
      saved_time_(parts.clock.MonotonicNow()) {}

bool JobSaver::Due(int64_t step) const {
  if (options_.folder.empty() || step <= saved_step_) {
    return false;
  }
  const bool by_steps = options_.every_steps > 0 && step % options_.every_steps == 0;
  const bool by_time = options_.every > absl::ZeroDuration() &&
                       parts_.clock.MonotonicNow() - saved_time_ >= options_.every;
  return by_steps || by_time;
}

absl::StatusOr<SaveRequest> JobSaver::Save(const TrainingProgress& progress, SaveRequest request,
                                           absl::Duration due) {
  while (true) {
    parts_.progress.Begin(TrainPhase::kSaving);
    const absl::Status status = TrySave(progress, request, due);
    MT_RETURN_IF_ERROR(pipeline_error_);
    if (status.ok()) {
      parts_.progress.Begin(TrainPhase::kTraining);
      return request;
    }
    MT_ASSIGN_OR_RETURN(
        const SaveRequest next,
        Hold({.step = progress.step, .trigger = request.trigger, .status = status}));
    request.trigger = request.then_stop ? request.trigger : next.trigger;
    request.then_stop = request.then_stop || next.then_stop;
    due = parts_.clock.MonotonicNow();
  }
}

absl::StatusOr<SaveRequest> JobSaver::Hold(const CheckpointFailure& failure) {
  parts_.observer.OnLogLine(
      absl::StrCat("the job holds its state in memory: ", std::string(failure.status.message())));
  parts_.progress.Begin(TrainPhase::kHolding);
  const std::optional<SaveRequest> next = parts_.observer.OnCheckpointFailed(failure);
  if (!next.has_value()) {
    return absl::CancelledError("the job was asked to stop while it held its state in memory");
  }
  return *next;
}

absl::Status JobSaver::TrySave(const TrainingProgress& progress, const SaveRequest& request,
                               absl::Duration due) {
  const absl::Duration start = parts_.clock.MonotonicNow();
  pipeline_error_ = parts_.session.pipeline().Drain();
  MT_RETURN_IF_ERROR(pipeline_error_);
  const absl::Duration drained = parts_.clock.MonotonicNow();
  CheckpointManifest manifest = form_;
  manifest.progress = progress;
  manifest.progress.update_count = parts_.session.pipeline().update_count();
  manifest.trigger = request.trigger;
  manifest.create_time = parts_.clock.WallNow();
  if (IsSaved(manifest.progress)) {
    TellOfSaved(request.trigger, start, due);
    return absl::OkStatus();
  }
  MT_ASSIGN_OR_RETURN(
      const WrittenCheckpoint written,
      WriteCheckpoint(parts_.session.store(), std::move(manifest), options_.folder, parts_.files,
                      log_,
                      parts_.progress.FollowWrite(
                          TrainPhase::kSaving,
                          {.step = progress.step, .trigger = request.trigger, .status = {}})));
  saved_step_ = progress.step;
  saved_time_ = parts_.clock.MonotonicNow();
  last_id_ = written.checkpoint.id;
  Report(written, {.id = last_id_,
                   .step = progress.step,
                   .trigger = request.trigger,
                   .size_bytes = written.checkpoint.SizeBytes(),
                   .save = saved_time_ - due,
                   .stall = saved_time_ - start,
                   .write = saved_time_ - drained,
                   .direct = written.direct});
  return absl::OkStatus();
}

// The newest one was written by this run, or loaded: what has its progress has its bits.
bool JobSaver::IsSaved(const TrainingProgress& progress) const {
  if (progress.step != saved_step_) {
    return false;
  }
  const absl::StatusOr<Checkpoint> newest =
      OpenCheckpoint(absl::StrCat(options_.folder, "/", CheckpointId(saved_step_)), parts_.files);
  return newest.ok() && newest->manifest.progress == progress;
}

void JobSaver::TellOfSaved(CheckpointTrigger trigger, absl::Duration start, absl::Duration due) {
  saved_time_ = parts_.clock.MonotonicNow();
  last_id_ = CheckpointId(saved_step_);
  parts_.observer.OnLogLine(absl::StrCat("checkpoint ", last_id_, " has this state already"));
  parts_.observer.OnCheckpoint({.id = last_id_,
                                .step = saved_step_,
                                .trigger = trigger,
                                .save = saved_time_ - due,
                                .stall = saved_time_ - start});
}

void JobSaver::Report(const WrittenCheckpoint& written, CheckpointReport report) {
  const double bytes = static_cast<double>(report.size_bytes);
  report.predicted_stall = absl::Seconds(PredictSaveStallSeconds(
      {.checkpoint_bytes = report.size_bytes,
       .disk_bytes_per_second = disk_bytes_per_second_,
       .drain_seconds = absl::ToDoubleSeconds(report.stall - report.write)}));
  disk_bytes_per_second_ = bytes / std::max(absl::ToDoubleSeconds(report.write), 1e-6);
  parts_.observer.OnLogLine(absl::StrFormat(
      "checkpoint %s: %s at %.2f GB/s%s, training stood still for %.2f s%s", report.id,
      FormatBytes(report.size_bytes), disk_bytes_per_second_ / 1e9,
      written.direct ? "" : " through the page cache, since the file system does not take O_DIRECT",
      absl::ToDoubleSeconds(report.stall),
      report.predicted_stall > absl::ZeroDuration()
          ? absl::StrFormat(", predicted %.2f s", absl::ToDoubleSeconds(report.predicted_stall))
          : ""));
  parts_.observer.OnCheckpoint(report);
}

}  // namespace megatrain
