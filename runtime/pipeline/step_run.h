#ifndef RUNTIME_PIPELINE_STEP_RUN_H_
#define RUNTIME_PIPELINE_STEP_RUN_H_

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "runtime/device/device.h"
#include "runtime/model/layer_template.h"
#include "runtime/optimizer/adamw.h"
#include "runtime/pipeline/device_memory.h"
#include "runtime/pipeline/pipeline_state.h"
#include "runtime/pipeline/schedule_executor.h"
#include "runtime/pipeline/step_result.h"
#include "runtime/schedule/schedule.h"

namespace megatrain {

// One step, or one evaluation, on its way through a schedule. Made for the micro-batches of
// `input`; `state` outlives it, and so does what the micro-batches view.
class StepRun final : public OperationRunner {
 public:
  StepRun(PipelineState& state, StepInput input, bool forward_only,
          std::unique_ptr<Event> result_known);

  absl::Status Run(const Operation& operation, Launcher& launcher) override;

  // Recorded by the schedule when what follows may be read.
  Event& result_known() { return *result_known_; }
  const StepResult& result() const { return result_; }        // of a step
  std::span<const double> losses() const { return losses_; }  // sums, by micro-batch

 private:
  absl::Status RunThere(const Operation& operation, Launcher& launcher);
  absl::Status Dispatch(const Operation& operation, Launcher& launcher);
  absl::Status LoadWeights(const Operation& operation, Launcher& launcher);
  void CopyActivations(const Operation& operation, Launcher& launcher);
  absl::Status Forward(const Operation& operation, Launcher& launcher);
  absl::Status Embed(const Operation& operation, Launcher& launcher);
  absl::Status Head(const Operation& operation, Launcher& launcher);
  absl::Status LayerBackward(const Operation& operation, Launcher& launcher);
  absl::Status EmbedBackward(const Operation& operation, Launcher& launcher);
  absl::Status FinalizeGradients(const Operation& operation, Launcher& launcher);
  void DownloadGradients(const Operation& operation, Launcher& launcher);
  void TakeResults();
  absl::Status Update(const Operation& operation, Launcher& launcher);

  void ClearGradients(const Operation& operation, Launcher& launcher);
  bool Overwrites(const Operation& operation) const;
  void PoisonFreedSlots(const Operation& operation, Launcher& launcher);
  bool IsMarkedByReader(int unit) const;
  void ClearMarks(Launcher& launcher);
  absl::Status MarkOutput(const Operation& operation, const void* output, Launcher& launcher);
  absl::Status Mark(int unit, const Operation& operation, const void* hidden, Launcher& launcher);
  AdamWStep OptimizerStep() const;

  // Device addresses.
  std::byte* At(const DeviceRegion& region) { return state_.device + region.offset_bytes; }
  std::byte* Results() { return At(state_.map.results); }
  const void* Weights(const Operation& operation) {
    return At(state_.map.weight_slots[operation.weight_slot]);
  }
  float* Gradients(int gradient_slot) {
    return reinterpret_cast<float*>(At(state_.map.gradient_slots[gradient_slot]));
  }
  float* TiedMatrixGradient() {
    return reinterpret_cast<float*>(At(state_.map.tied_matrix_gradient));
  }
  std::byte* Boundary(int unit, int activation_slot);
  std::byte* HiddenGradient(int activation_slot);
  const void* LayerInput(const Operation& operation);
  std::byte* KeptData(const Operation& operation);
  std::byte* StashedKept(int stash_slot);
  ModelTemplates::LayerArguments LayerArguments(const Operation& operation);
  const void* HeadMatrix(const Operation& operation);
  float* HeadMatrixGradient(const Operation& operation);
  int64_t ActivationOffsetBytes(int activation_slot) const;
  int64_t KeptOffsetBytes(const Operation& operation) const;
  int64_t BoundaryBytes(const Operation& operation) const;
  Workspace WorkspaceOf(Launcher& launcher);
  int64_t hidden_size() const;
  int64_t micro_batch_tokens(const Operation& operation) const;
  const MicroBatch& Batch(const Operation& operation) const {
    return input_.micro_batches[operation.micro_batch];
  }

  PipelineState& state_;
  StepInput input_;  // its micro-batches learn where their tables are
  const bool forward_only_;
  const std::unique_ptr<Event> result_known_;
  std::vector<int64_t> activation_starts_;  // in tokens, by activation slot
  std::vector<double> losses_;              // sums, by micro-batch
  StepResult result_;
};

}  // namespace megatrain

#endif  // RUNTIME_PIPELINE_STEP_RUN_H_
