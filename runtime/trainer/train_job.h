// One training job as the trainer takes it, and what it tells while it runs. Values only.

#ifndef RUNTIME_TRAINER_TRAIN_JOB_H_
#define RUNTIME_TRAINER_TRAIN_JOB_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/data/batch_reader.h"
#include "runtime/device/stream_figures.h"
#include "runtime/kernels/attention_shape.h"
#include "runtime/model/layer_template.h"
#include "runtime/optimizer/adamw.h"
#include "runtime/optimizer/learning_rate.h"
#include "runtime/pipeline/pipeline_options.h"
#include "runtime/planner/planner.h"
#include "runtime/schedule/schedule.h"

namespace megatrain {

// When a job's state is saved, and where; besides whenever its observer asks for it.
struct SaveOptions {
  std::string folder;       // the job's checkpoints; empty: nothing is saved
  int64_t every_steps = 0;  // 0: not by steps
  absl::Duration every;     // zero: not by time
  bool at_end = false;      // after the last step, before the export
  int64_t keep_count = 1;   // how many are kept there, for the check of room
  std::string spec;         // opaque: stands in each checkpoint
};

// What a job starts from instead of its model's own weights: at most one path is set.
struct StartOptions {
  std::string resume_path;   // a checkpoint to go on from, with everything that is in it
  std::string weights_path;  // a checkpoint whose weights replace the model's
};

// Whether and when a job is measured on rows that it does not learn from.
struct EvaluationOptions {
  double split = 0;              // part of the data's rows that is set aside for it; 0: none
  std::string data_path;         // or a folder of prepared data; at most one of the two is set
  std::string data_fingerprint;  // that it must have; empty: any
  int64_t every_steps = 0;       // 0: after the last step only
  int64_t patience = 0;  // evaluations in a row without gain that end the training; 0: never
  double min_delta = 0;  // how far below the best so far a loss must be to be a gain

  bool enabled() const { return split > 0 || !data_path.empty(); }
};

// Everything is resolved: no default is left to fill in.
struct TrainJob {
  std::string model_path;         // a Hugging Face folder
  std::string data_path;          // a folder of prepared data
  std::string output_path;        // does not exist yet; its parent does
  std::string data_fingerprint;   // that the data must have; empty: any
  std::string model_fingerprint;  // of the model's files, opaque; must be a checkpoint's too
  StartOptions start;
  SaveOptions save;
  EvaluationOptions evaluation;
  BatchOptions batches;  // held_out_split is not read: evaluation.split is
  ComputeDtype compute_dtype = ComputeDtype::kFloat32;
  AttentionMode attention = AttentionMode::kFast;
  AdamWStep optimizer;             // learning_rate, step and gradient_scale are not read
  LearningRateSchedule schedule;   // total_steps is not read: the data decides
  double max_gradient_norm = 1.0;  // 0: no clipping
  int64_t nonfinite_step_limit = 3;
  std::optional<MicroBatchOrder> order;
  int weight_slot_count = 0;  // 0: the planner's choice
  bool resident_weights = false;
  PinMode pin = PinMode::kAuto;
  int64_t host_limit_bytes = 0;    // 0: no limit
  int64_t device_limit_bytes = 0;  // 0: no limit
};

enum class TrainPhase {
  kPreparingMemory,
  kLoading,
  kPinning,
  kTraining,
  kSaving,
  kHolding,
  kEvaluating,
  kExporting
};

// As people read it.
std::string_view TrainPhaseName(TrainPhase phase);

// What one optimizer step did.
struct StepReport {
  int64_t step = 0;          // from 1
  double loss = 0;           // mean over the step's loss tokens, before its update
  double gradient_norm = 0;  // before clipping
  double learning_rate = 0;  // the one that was used
  int64_t token_count = 0;   // real tokens
  int64_t loss_token_count = 0;
  absl::Duration duration;   // since the end of the step before
  bool skipped = false;      // loss or gradient was not finite: the weights did not change
  uint32_t rows_crc32c = 0;  // of the numbers of the job's rows so far, in their order
};

// A checkpoint that is complete and durable.
struct CheckpointReport {
  std::string id;
  int64_t step = 0;
  CheckpointTrigger trigger = CheckpointTrigger::kManual;
  int64_t size_bytes = 0;          // of all files; 0: it was there already, with this state
  absl::Duration save;             // from when it was due, or asked for, to its commit
  absl::Duration stall;            // for which training stood still
  absl::Duration write;            // of that, the disk's part
  absl::Duration predicted_stall;  // from the saves before; zero at the first
  bool direct = false;             // past the page cache; else the file system cannot do that
};

// A checkpoint, or the export after the last step, that could not be written; nothing of it is
// left.
struct CheckpointFailure {
  int64_t step = 0;
  CheckpointTrigger trigger = CheckpointTrigger::kManual;
  absl::Status status;
};

struct EvaluationReport {
  int64_t step = 0;  // steps that were done
  double loss = 0;   // mean over the trained tokens of all its rows
  int64_t loss_token_count = 0;
  absl::Duration duration;
};

// Asks a running job for a checkpoint.
struct SaveRequest {
  CheckpointTrigger trigger = CheckpointTrigger::kManual;
  bool then_stop = false;
};

// Cumulative figures of the device's streams, by StreamKind.
using AllStreamFigures = std::array<StreamFigures, kStreamCount>;

// Hears what happens. Called by one thread at a time: the one that runs the job, or one that it
// waits for. Calls may block: the job waits.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;

  virtual void OnPhase(TrainPhase phase) = 0;
  // How far a phase is that takes long; told every few seconds, and it may be the first of it.
  virtual void OnPhaseProgress(TrainPhase phase, int64_t done_bytes, int64_t all_bytes) = 0;
  // `first_step`: steps that the checkpoint has done from which the job goes on.
  virtual void OnPlanned(const Plan& plan, int64_t step_count, int64_t first_step) = 0;
  virtual void OnStep(const StepReport& report, const AllStreamFigures& figures) = 0;
  virtual void OnLogLine(const std::string& line) = 0;
  virtual void OnCheckpoint(const CheckpointReport& report) = 0;
  virtual void OnEvaluation(const EvaluationReport& report) = 0;

  // Blocks, while the state waits in memory, until the save is to be tried again, for this request;
  // absent when the job is to end with CANCELLED. After an export a request that stops the job
  // makes a checkpoint instead.
  virtual std::optional<SaveRequest> OnCheckpointFailed(const CheckpointFailure& failure) = 0;

  // A save or an export does not go on, since the disk takes nothing; it goes on when the disk
  // does. Called by another thread than the rest, while the job's own may be stuck.
  virtual void OnDiskWait(const CheckpointFailure& failure) = 0;

  // Asked at each step, and at each batch of an evaluation; what was asked for since the last call.
  // Not without save.folder.
  virtual std::optional<SaveRequest> TakeSaveRequest() = 0;

  // The job stands still, for longer than it should have to: `what`, in words. Called by another
  // thread than the rest, while that may be stuck for ever: nothing can be unwound, so whoever
  // hears it ends the process. At most once.
  virtual void OnStall(const std::string& what) = 0;

  // Asked often until the first step, at each step, within an evaluation and before the export;
  // true ends the job with CANCELLED.
  virtual bool StopRequested() = 0;
};

}  // namespace megatrain

#endif  // RUNTIME_TRAINER_TRAIN_JOB_H_
