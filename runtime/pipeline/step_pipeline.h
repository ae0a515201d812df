#ifndef RUNTIME_PIPELINE_STEP_PIPELINE_H_
#define RUNTIME_PIPELINE_STEP_PIPELINE_H_

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/byte_progress.h"
#include "runtime/config/model_layout.h"
#include "runtime/device/device.h"
#include "runtime/device/device_math.h"
#include "runtime/device/stream_figures.h"
#include "runtime/hoststore/host_store.h"
#include "runtime/hoststore/page_pinner.h"
#include "runtime/hoststore/pinned_arena.h"
#include "runtime/model/layer_template.h"
#include "runtime/optimizer/optimizer_pool.h"
#include "runtime/pipeline/pipeline_options.h"
#include "runtime/pipeline/pipeline_progress.h"
#include "runtime/pipeline/schedule_executor.h"
#include "runtime/pipeline/step_result.h"
#include "runtime/pipeline/step_run.h"
#include "runtime/schedule/schedule.h"

namespace megatrain {

// Trains a model that lives in a host store on a device that holds a part of it: weights stream
// in by unit, gradients stream out, the optimizer updates the store while the next step's forward
// already runs. The result is that of synchronous AdamW with global-norm clipping, bit by bit,
// whatever the placement.
//
// One thread at a time may call it; only Figures and Progress may be called by any. Usual use:
//   SubmitStep(first);
//   while (...) { SubmitStep(next); result = WaitStep(); ... }   // one step ahead, or none
//   WaitStep(); Drain();                                         // now the store is up to date
//
// An error of a template, or of the device, ends everything: from then on WaitStep, Evaluate and
// Drain return it. Units may be updated or not, so the store is of no more use.
class StepPipeline {
 public:
  // All of these must outlive the pipeline. The optimizer's threads are `pool`'s.
  struct Parts {
    Device& device;
    DeviceMath& math;  // of that device
    HostStore& store;  // gradients of 2 or 4 bytes an element: rounded to bf16 or kept
    ModelTemplates& templates;
    OptimizerPool& pool;
    PagePinner* pinner = nullptr;  // of that device; nullptr where it is the host
    ByteProgress progress = {};    // of giving activations on the host their memory
  };

  // Takes all device memory, and all that activations need on the host, at once, and copies there
  // what is to stay: the store's weights and moments must be there by now. INVALID_ARGUMENT when an
  // option is not positive or below what the templates need, RESOURCE_EXHAUSTED when device or host
  // have not that much, or do not pin it where the options say that they must.
  static absl::StatusOr<std::unique_ptr<StepPipeline>> Create(const Parts& parts,
                                                              const ModelLayout& layout,
                                                              const PipelineOptions& options);

  // Waits for all work; results that nobody took are dropped.
  ~StepPipeline();
  StepPipeline(const StepPipeline&) = delete;
  StepPipeline& operator=(const StepPipeline&) = delete;

  // Enqueues a step and returns at once, while earlier steps may still run or update.
  // INVALID_ARGUMENT when it has no micro-batch or loss token, or more than the options allow.
  absl::Status SubmitStep(StepInput input);

  // Blocks until loss and norm of the oldest step without a result are known; its updates may
  // still run. FAILED_PRECONDITION when every step has given its result.
  absl::StatusOr<StepResult> WaitStep();

  // The sum of all token losses under the weights that all submitted steps leave, NaN included.
  // Any number of micro-batches; each within the options' limits.
  absl::StatusOr<double> Evaluate(std::span<const MicroBatch> micro_batches);

  // Blocks until all submitted steps and their updates are over.
  absl::Status WaitForUpdates();

  // The same, and then the store holds the result, also of units whose state is on the device: the
  // state between two steps, which no later step touches before it is submitted.
  absl::Status Drain();

  // Steps that updated, before this pipeline too where set_update_count says so: AdamW's own step.
  // Set before the first step; known after WaitForUpdates and Drain.
  int64_t update_count() const { return state_.update_count; }
  void set_update_count(int64_t count) { state_.update_count = count; }

  // Device memory in use, and host memory beside the store, all of it taken by Create.
  int64_t device_bytes() const { return state_.map.bytes.total(); }
  int64_t host_bytes() const;

  // Host memory for activations, how much of it is pinned, and why not all: OK when all is, or the
  // options leave it pageable.
  struct HostActivations {
    int64_t size_bytes = 0;
    int64_t pinned_bytes = 0;
    absl::Status refusal;
  };
  HostActivations host_activations() const;

  // Whether copies of a step go through slabs, some or all.
  bool uses_slabs() const;

  // By StreamKind; cumulative since Create.
  std::array<StreamFigures, kStreamCount> Figures() const;

  // What each stream does now.
  PipelineProgress Progress() const;

 private:
  StepPipeline(const Parts& parts, const ModelLayout& layout, const PipelineOptions& options);

  absl::Status Allocate(const ByteProgress& progress);
  absl::Status AllocateSlabs();
  absl::Status AllocateHostActivations(const ByteProgress& progress);
  absl::Status PinRefusal() const;
  // Copies what stays on the device of every unit there, or back to the store.
  absl::Status BringStates(Launcher& launcher);
  absl::Status FetchStates(Launcher& launcher);
  absl::Status CheckMicroBatches(std::span<const MicroBatch> micro_batches) const;
  absl::Status PrepareMicroBatches(std::span<const MicroBatch> micro_batches);
  absl::StatusOr<const Schedule*> ScheduleFor(int micro_batch_count, bool forward_only);
  absl::StatusOr<std::unique_ptr<StepRun>> Issue(StepInput input, bool forward_only);
  int EvaluationGroupSize(std::span<const MicroBatch> micro_batches) const;

  Device& device_;
  PagePinner* const pinner_;
  PipelineState state_;
  std::unique_ptr<DeviceBuffer> arena_;
  std::unique_ptr<DeviceBuffer> host_results_;
  std::map<std::pair<int, bool>, Schedule> schedules_;  // by micro-batch count, forward-only
  std::deque<std::unique_ptr<StepRun>> waiting_;        // steps whose result is not taken
  std::unique_ptr<StepRun> updating_;                   // the step whose result was taken last
  std::unique_ptr<StepRun> evaluation_;                 // the last one
  ScheduleExecutor executor_;  // last, so that it ends first: its streams use all of the above
};

}  // namespace megatrain

#endif  // RUNTIME_PIPELINE_STEP_PIPELINE_H_
