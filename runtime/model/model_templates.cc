#include "runtime/model/model_templates.h"

#include <c10/core/ScalarType.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/model/decoder_layer.h"
#include "runtime/model/head.h"
#include "runtime/model/micro_batch_check.h"
#include "runtime/model/workspace_size.h"
#include "runtime/ops/compute_threads.h"
#include "runtime/ops/rope.h"
#include "runtime/ops/rows.h"
#include "runtime/ops/tensor_view.h"
#include "runtime/ops/workspace.h"

namespace megatrain {
namespace {

// `tensor` itself when it is fp32, else a new fp32 tensor of its shape.
at::Tensor Widened(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat ? tensor : Uninitialized(tensor.sizes(), at::kFloat);
}

// Rounds to the other's dtype, unless they are one tensor.
void Narrow(const at::Tensor& wide, const at::Tensor& tensor) {
  if (!wide.is_same(tensor)) {
    tensor.copy_(wide);
  }
}

class DenseDecoderTemplates final : public ModelTemplates {
 public:
  DenseDecoderTemplates(const ModelConfig& config, const ModelLayout& layout, ComputeDtype dtype)
      : config_(config),
        layout_(layout),
        dtype_(dtype == ComputeDtype::kFloat32 ? at::kFloat : at::kBFloat16),
        frequencies_(InverseFrequencies(config.rope, config.head_dim)) {}

  absl::Status EmbedForward(const void* embedding_weights, const MicroBatch& batch, void* hidden,
                            Workspace workspace) override {
    MT_RETURN_IF_ERROR(CheckTokens(batch, config_.vocab_size));
    return RunInWorkspace(workspace.data, workspace.size_bytes, [&] {
      GatherRows(View(embedding_weights, {config_.vocab_size, config_.hidden_size}, dtype_),
                 batch.tokens, Hidden(hidden, batch));
      return absl::OkStatus();
    });
  }

  absl::Status EmbedBackward(const MicroBatch& batch, const void* hidden_gradient,
                             float* embedding_gradients, Workspace workspace) override {
    MT_RETURN_IF_ERROR(CheckTokens(batch, config_.vocab_size));
    return RunInWorkspace(workspace.data, workspace.size_bytes, [&] {
      AddRows(Hidden(hidden_gradient, batch), batch.tokens,
              View(embedding_gradients, {config_.vocab_size, config_.hidden_size}, at::kFloat));
      return absl::OkStatus();
    });
  }

  absl::Status LayerForward(const LayerArguments& arguments, const MicroBatch& batch, void* output,
                            Workspace workspace) override {
    MT_RETURN_IF_ERROR(CheckDocuments(batch));
    return RunInWorkspace(workspace.data, workspace.size_bytes, [&] {
      const at::Tensor output_TD = Hidden(output, batch);
      const at::Tensor wide_TD = Widened(output_TD);
      DecoderLayerForward(Input(arguments.input, batch),
                          BindLayer(Layer(arguments.unit), arguments.weights, dtype_), wide_TD);
      Narrow(wide_TD, output_TD);
      return absl::OkStatus();
    });
  }

  absl::Status LayerBackward(const LayerArguments& arguments, const MicroBatch& batch,
                             void* hidden_gradient, float* gradients,
                             Workspace workspace) override {
    MT_RETURN_IF_ERROR(CheckDocuments(batch));
    return RunInWorkspace(workspace.data, workspace.size_bytes, [&] {
      const at::Tensor gradient_TD = Hidden(hidden_gradient, batch);
      const at::Tensor wide_TD = AsFloat(gradient_TD);
      DecoderLayerBackward(Input(arguments.input, batch),
                           BindLayer(Layer(arguments.unit), arguments.weights, dtype_), wide_TD,
                           BindLayer(Layer(arguments.unit), gradients, at::kFloat));
      Narrow(wide_TD, gradient_TD);
      return absl::OkStatus();
    });
  }

  absl::Status Head(const HeadInput& input, const HeadGradients& gradients, const MicroBatch& batch,
                    Workspace workspace) override {
    MT_RETURN_IF_ERROR(CheckTargets(batch, config_.vocab_size));
    return RunInWorkspace(workspace.data, workspace.size_bytes, [&] {
      const HeadGradientTensors tensors = {
          .norm_D = FinalNorm(gradients.head, at::kFloat),
          .matrix_VD =
              View(gradients.matrix, {config_.vocab_size, config_.hidden_size}, at::kFloat),
          .hidden_TD = Hidden(gradients.hidden, batch),
          .loss_scale = gradients.loss_scale};
      *input.result = RunHead(HeadTensors(input, batch), &tensors);
      return absl::OkStatus();
    });
  }

  absl::Status HeadLoss(const HeadInput& input, const MicroBatch& batch,
                        Workspace workspace) override {
    MT_RETURN_IF_ERROR(CheckTargets(batch, config_.vocab_size));
    return RunInWorkspace(workspace.data, workspace.size_bytes, [&] {
      *input.result = RunHead(HeadTensors(input, batch), nullptr);
      return absl::OkStatus();
    });
  }

 private:
  const UnitLayout& Layer(int unit) const {
    MT_CHECK(unit >= 1 && unit <= layout_.layer_count());
    return layout_.units[unit];
  }

  at::Tensor Hidden(const void* data, const MicroBatch& batch) const {
    return View(data, {static_cast<int64_t>(batch.tokens.size()), config_.hidden_size}, dtype_);
  }

  at::Tensor FinalNorm(const void* head_unit, c10::ScalarType dtype) const {
    const TensorLayout* norm = layout_.units.back().Find(TensorRole::kFinalNorm);
    const auto* base = static_cast<const char*>(head_unit);
    return View(base + norm->offset_elements * static_cast<int64_t>(c10::elementSize(dtype)),
                norm->shape, dtype);
  }

  LayerInput Input(const void* hidden, const MicroBatch& batch) const {
    return {.config = config_,
            .hidden_TD = AsFloat(Hidden(hidden, batch)),
            .document_offsets = batch.document_offsets,
            .rope = MakeRopeTable(batch.positions, frequencies_)};
  }

  HeadInputTensors HeadTensors(const HeadInput& input, const MicroBatch& batch) const {
    return {.hidden_TD = Hidden(input.hidden, batch),
            .norm_D = FinalNorm(input.head_weights, dtype_),
            .matrix_VD = View(input.matrix, {config_.vocab_size, config_.hidden_size}, dtype_),
            .norm_epsilon = config_.norm_epsilon,
            .loss_positions = batch.loss_positions,
            .loss_targets = batch.loss_targets};
  }

  const ModelConfig config_;
  const ModelLayout layout_;
  const c10::ScalarType dtype_;
  const std::vector<float> frequencies_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ModelTemplates>> MakeModelTemplates(const ModelConfig& config,
                                                                   const ModelLayout& layout,
                                                                   ComputeDtype dtype) {
  MT_RETURN_IF_ERROR(CheckTrainable(config));
  MT_CHECK(layout.layer_count() == config.layer_count);
  LimitComputeThreads(static_cast<int>(kMaxComputeThreads));
  return std::make_unique<DenseDecoderTemplates>(config, layout, dtype);
}

}  // namespace megatrain
