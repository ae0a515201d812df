#ifndef RUNTIME_PIPELINE_STEP_RUN_H_
#define RUNTIME_PIPELINE_STEP_RUN_H_

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "runtime/config/model_layout.h"
#include "runtime/device/device.h"
#include "runtime/hoststore/host_store.h"
#include "runtime/model/layer_template.h"
#include "runtime/optimizer/optimizer_pool.h"
#include "runtime/pipeline/device_memory.h"
#include "runtime/pipeline/pipeline_options.h"
#include "runtime/pipeline/schedule_executor.h"
#include "runtime/pipeline/step_result.h"
#include "runtime/schedule/schedule.h"

namespace megatrain {

// What all steps of a pipeline share.
struct PipelineState {
  ModelLayout layout;
  HostStore& store;
  ModelTemplates& templates;
  OptimizerPool& pool;
  PipelineOptions options;
  DeviceMemoryMap map;
  std::byte* device = nullptr;  // the arena that `map` describes
  int64_t update_count = 0;     // steps that updated; the optimizer stream's own
};

// One step, or one evaluation, on its way through a schedule. Made for the micro-batches of
// `input`; `state` outlives it, and so does what the micro-batches view.
class StepRun final : public OperationRunner {
 public:
  StepRun(PipelineState& state, StepInput input, std::unique_ptr<Event> result_known);

  absl::Status Run(const Operation& operation, Launcher& launcher) override;

  // Recorded by the schedule when what follows may be read.
  Event& result_known() { return *result_known_; }
  const StepResult& result() const { return result_; }
  std::span<const double> losses() const { return losses_; }  // sums, by micro-batch

 private:
  absl::Status Dispatch(const Operation& operation, Launcher& launcher);
  void LoadWeights(const Operation& operation, Launcher& launcher);
  absl::Status Forward(const Operation& operation);
  absl::Status Head(const Operation& operation);
  absl::Status HeadLoss(const Operation& operation);
  absl::Status Backward(const Operation& operation);
  void FinalizeGradients(const Operation& operation);
  void DownloadGradients(const Operation& operation, Launcher& launcher);
  void TakeNorm();
  void Update(const Operation& operation);

  void ClearGradients(const Operation& operation, Launcher& launcher);
  void PoisonFreedSlots(const Operation& operation, Launcher& launcher);
  void KeepLoss(const Operation& operation, const HeadResult& head);
  NonFinite LocateLoss(const Operation& operation, int loss_index);
  NonFinite LocateGradient() const;

  // Device addresses.
  std::byte* At(const DeviceRegion& region) { return state_.device + region.offset_bytes; }
  const void* Weights(const Operation& operation) {
    return At(state_.map.weight_slots[operation.weight_slot]);
  }
  float* Gradients(int gradient_slot) {
    return reinterpret_cast<float*>(At(state_.map.gradient_slots[gradient_slot]));
  }
  double* Squares(int unit) { return reinterpret_cast<double*>(At(state_.map.squares[unit])); }
  float* TiedMatrixGradient() {
    return reinterpret_cast<float*>(At(state_.map.tied_matrix_gradient));
  }
  std::byte* Boundary(int unit, int activation_slot);
  std::byte* HiddenGradient(int activation_slot);
  const void* HeadMatrix(const Operation& operation);
  float* HeadMatrixGradient(const Operation& operation);
  int64_t ActivationOffsetBytes(int activation_slot) const;
  Workspace workspace();
  int64_t hidden_size() const;

  PipelineState& state_;
  const StepInput input_;
  const std::unique_ptr<Event> result_known_;
  std::vector<int64_t> activation_starts_;       // in tokens, by activation slot
  std::vector<double> losses_;                   // sums, by micro-batch
  std::vector<std::vector<double>> squares_;     // on the host, by unit and tensor
  std::vector<NonFinite> non_finite_losses_;     // at most one a micro-batch
  std::vector<NonFinite> non_finite_gradients_;  // of hidden states, at most one a micro-batch
  StepResult result_;
};

}  // namespace megatrain

#endif  // RUNTIME_PIPELINE_STEP_RUN_H_
