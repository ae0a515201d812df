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

  absl::Status LayerForward(int unit, const void* weights, const MicroBatch& batch,
                            const void* input, void* output, Workspace workspace) override {
    MT_RETURN_IF_ERROR(CheckDocuments(batch));
    return RunInWorkspace(workspace.data, workspace.size_bytes, [&] {
      const at::Tensor output_TD = Hidden(output, batch);
      const at::Tensor wide_TD = Widened(output_TD);
      DecoderLayerForward(Input(input, batch), BindLayer(Layer(unit), weights, dtype_), wide_TD);
      Narrow(wide_TD, output_TD);
      return absl::OkStatus();
    });
  }

  absl::Status LayerBackward(int unit, const void* weights, const MicroBatch& batch,
                             const void* input, void* hidden_gradient, float* gradients,
                             Workspace workspace) override {
    MT_RETURN_IF_ERROR(CheckDocuments(batch));
    return RunInWorkspace(workspace.data, workspace.size_bytes, [&] {
      const at::Tensor gradient_TD = Hidden(hidden_gradient, batch);
      const at::Tensor wide_TD = AsFloat(gradient_TD);
      DecoderLayerBackward(Input(input, batch), BindLayer(Layer(unit), weights, dtype_), wide_TD,
                           BindLayer(Layer(unit), gradients, at::kFloat));
      Narrow(wide_TD, gradient_TD);
      return absl::OkStatus();
    });
  }

  absl::StatusOr<HeadResult> Head(const HeadArguments& arguments, const MicroBatch& batch,
                                  Workspace workspace) override {
    MT_RETURN_IF_ERROR(CheckTargets(batch, config_.vocab_size));
    HeadResult result;
    MT_RETURN_IF_ERROR(RunInWorkspace(workspace.data, workspace.size_bytes, [&] {
      const HeadGradients gradients = {
          .norm_D = FinalNorm(arguments.head_gradients, at::kFloat),
          .matrix_VD = View(arguments.matrix_gradient, {config_.vocab_size, config_.hidden_size},
                            at::kFloat),
          .hidden_TD = Hidden(arguments.hidden_gradient, batch),
          .loss_scale = arguments.loss_scale};
      result = RunHead(Input(arguments.head_weights, arguments.matrix, arguments.input, batch),
                       &gradients);
      return absl::OkStatus();
    }));
    return result;
  }

  absl::StatusOr<HeadResult> HeadLoss(const void* head_weights, const void* matrix,
                                      const void* input, const MicroBatch& batch,
                                      Workspace workspace) override {
    MT_RETURN_IF_ERROR(CheckTargets(batch, config_.vocab_size));
    HeadResult result;
    MT_RETURN_IF_ERROR(RunInWorkspace(workspace.data, workspace.size_bytes, [&] {
      result = RunHead(Input(head_weights, matrix, input, batch), nullptr);
      return absl::OkStatus();
    }));
    return result;
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

  HeadInput Input(const void* head_weights, const void* matrix, const void* hidden,
                  const MicroBatch& batch) const {
    return {.hidden_TD = Hidden(hidden, batch),
            .norm_D = FinalNorm(head_weights, dtype_),
            .matrix_VD = View(matrix, {config_.vocab_size, config_.hidden_size}, dtype_),
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
