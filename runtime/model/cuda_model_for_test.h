// For tests: a whole toy model on the CUDA templates alone, with a DirectModel's weights.

#ifndef RUNTIME_MODEL_CUDA_MODEL_FOR_TEST_H_
#define RUNTIME_MODEL_CUDA_MODEL_FOR_TEST_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/config/model_config.h"
#include "runtime/config/model_layout.h"
#include "runtime/kernels/attention_shape.h"
#include "runtime/kernels/device_array_for_test.h"
#include "runtime/model/cuda_buffers.h"
#include "runtime/model/direct_model.h"
#include "runtime/model/layer_template.h"

namespace megatrain {

// Device memory is poisoned before every run, but for the gradients, and guarded on both sides.
class CudaModelForTest {
 public:
  struct Options {
    AttentionMode attention = AttentionMode::kDeterministic;
    KeepLevel keep = KeepLevel::kNothing;
    int64_t shift_bytes = 0;              // moves every buffer; a multiple of 64
    int64_t missing_workspace_bytes = 0;  // of what the templates need
    bool overwrites_gradients = false;    // but the embedding's, which are poisoned before a run
  };

  // Aborts where templates cannot be made.
  CudaModelForTest(const ModelConfig& config, ComputeDtype dtype, const MicroBatchLimits& limits,
                   const DirectModel& weights, const Options& options);
  CudaModelForTest(const ModelConfig& config, ComputeDtype dtype, const MicroBatchLimits& limits,
                   const DirectModel& weights)
      : CudaModelForTest(config, dtype, limits, weights, Options()) {}

  // Forward and backward; gradients are added to.
  absl::StatusOr<HeadResult> Run(const MicroBatch& batch, double loss_scale);

  // Forward alone.
  absl::StatusOr<HeadResult> Evaluate(const MicroBatch& batch);

  // What the last run's layers gave, [t, d].
  std::vector<float> LastBoundary() { return boundaries_.back()->Download(); }

  std::vector<float> Gradient(int unit) { return gradients_[unit]->Download(); }
  // Of a tied table through the head; empty when untied.
  std::vector<float> TiedGradient() { return tied_gradient_->Download(); }

  const ModelLayout& layout() const { return layout_; }

 private:
  using Bytes = DeviceArray<unsigned char>;

  std::unique_ptr<Bytes> NewBytes(int64_t size_bytes) const;
  // Poisons what a run uses, prepares and binds the batch.
  absl::StatusOr<MicroBatch> Bind(const MicroBatch& batch);
  absl::Status Forward(const MicroBatch& bound);
  void PoisonGradients();
  absl::Status Backward(const MicroBatch& bound, void* hidden_gradient);
  ModelTemplates::LayerArguments Layer(int layer);
  ModelTemplates::HeadInput LossInput();
  Workspace Whole();
  HeadResult DownloadResult();

  const ModelConfig config_;
  const ModelLayout layout_;
  const ComputeDtype dtype_;
  const Options options_;
  const int64_t workspace_bytes_;
  std::unique_ptr<ModelTemplates> templates_;
  std::vector<std::unique_ptr<Bytes>> weights_;                 // of each unit
  std::vector<std::unique_ptr<DeviceArray<float>>> gradients_;  // of each unit
  std::unique_ptr<DeviceArray<float>> tied_gradient_;

  // Of the run in progress or the last one.
  std::unique_ptr<Bytes> workspace_;
  std::unique_ptr<Bytes> tables_;
  std::unique_ptr<Bytes> result_;
  std::vector<std::unique_ptr<DeviceNumbers>> boundaries_;
  std::vector<std::unique_ptr<Bytes>> kept_;
};

}  // namespace megatrain

#endif  // RUNTIME_MODEL_CUDA_MODEL_FOR_TEST_H_
