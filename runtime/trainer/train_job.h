// One training job as the trainer takes it, and what it tells while it runs. Values only.

#ifndef RUNTIME_TRAINER_TRAIN_JOB_H_
#define RUNTIME_TRAINER_TRAIN_JOB_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "runtime/data/batch_reader.h"
#include "runtime/device/stream_figures.h"
#include "runtime/kernels/attention_shape.h"
#include "runtime/model/layer_template.h"
#include "runtime/optimizer/adamw.h"
#include "runtime/optimizer/learning_rate.h"
#include "runtime/planner/planner.h"
#include "runtime/schedule/schedule.h"

namespace megatrain {

// Everything is resolved: no default is left to fill in.
struct TrainJob {
  std::string model_path;   // a Hugging Face folder
  std::string data_path;    // a folder of prepared data
  std::string output_path;  // does not exist yet; its parent does
  BatchOptions batches;
  ComputeDtype compute_dtype = ComputeDtype::kFloat32;
  AttentionMode attention = AttentionMode::kFast;
  AdamWStep optimizer;             // learning_rate, step and gradient_scale are not read
  LearningRateSchedule schedule;   // total_steps is not read: the data decides
  double max_gradient_norm = 1.0;  // 0: no clipping
  int64_t nonfinite_step_limit = 3;
  std::optional<MicroBatchOrder> order;
  int weight_slot_count = 0;  // 0: the planner's choice
  bool resident_weights = false;
  int64_t host_limit_bytes = 0;    // 0: no limit
  int64_t device_limit_bytes = 0;  // 0: no limit
};

enum class TrainPhase { kPreparingMemory, kLoading, kPinning, kTraining, kExporting };

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
  absl::Duration duration;  // since the end of the step before
  bool skipped = false;     // loss or gradient was not finite: the weights did not change
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
  virtual void OnPlanned(const Plan& plan, int64_t step_count) = 0;
  virtual void OnStep(const StepReport& report, const AllStreamFigures& figures) = 0;
  virtual void OnLogLine(const std::string& line) = 0;

  // The job stands still, for longer than it should have to: `what`, in words. Called by another
  // thread than the rest, while that may be stuck for ever: nothing can be unwound, so whoever
  // hears it ends the process. At most once.
  virtual void OnStall(const std::string& what) = 0;

  // Asked often until the first step, at each step and before the export; true ends the job with
  // CANCELLED.
  virtual bool StopRequested() = 0;
};

}  // namespace megatrain

#endif  // RUNTIME_TRAINER_TRAIN_JOB_H_
