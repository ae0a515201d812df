#include "runtime/model/cuda_model_for_test.h"

#include <cstring>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/model/cuda_templates.h"

namespace megatrain {

CudaModelForTest::CudaModelForTest(const ModelConfig& config, ComputeDtype dtype,
                                   const MicroBatchLimits& limits, const DirectModel& weights,
                                   const Options& options)
    : config_(config),
      layout_(MakeModelLayout(config)),
      dtype_(dtype),
      options_(options),
      workspace_bytes_(
          CudaWorkspaceBytes(MakeCudaShape(config, dtype, options.attention, limits.tokens),
                             limits.tokens) -
          options.missing_workspace_bytes) {
  auto templates = MakeCudaTemplates(config, layout_, dtype, options.attention, limits);
  MT_CHECK(templates.ok());
  templates_ = *std::move(templates);
  for (size_t unit = 0; unit < layout_.units.size(); ++unit) {
    const int64_t count = layout_.units[unit].element_count;
    std::vector<unsigned char> bytes(count * SizeBytes(dtype));
    std::memcpy(bytes.data(), weights.weights(static_cast<int>(unit)), bytes.size());
    weights_.push_back(NewBytes(static_cast<int64_t>(bytes.size())));
    weights_.back()->Upload(bytes);
    gradients_.push_back(std::make_unique<DeviceArray<float>>(count, options.shift_bytes));
    gradients_.back()->Clear();
  }
  tied_gradient_ = std::make_unique<DeviceArray<float>>(
      config.tied ? config.vocab_size * config.hidden_size : 0, options.shift_bytes);
  tied_gradient_->Clear();
}

std::unique_ptr<CudaModelForTest::Bytes> CudaModelForTest::NewBytes(int64_t size_bytes) const {
  return std::make_unique<Bytes>(size_bytes, options_.shift_bytes);
}

absl::StatusOr<MicroBatch> CudaModelForTest::Bind(const MicroBatch& batch) {
  MT_RETURN_IF_ERROR(templates_->Prepare(batch));
  const auto tokens = static_cast<int64_t>(batch.tokens.size());
  const int64_t padded_tokens = (tokens + kActivationAlignmentTokens - 1) /
                                kActivationAlignmentTokens * kActivationAlignmentTokens;
  workspace_ = NewBytes(workspace_bytes_);
  tables_ = NewBytes(templates_->BatchTableBytes());
  result_ = NewBytes(sizeof(HeadResult));
  boundaries_.clear();
  kept_.clear();
  for (int layer = 0; layer <= layout_.layer_count(); ++layer) {
    boundaries_.push_back(std::make_unique<DeviceNumbers>(dtype_, tokens * config_.hidden_size,
                                                          options_.shift_bytes));
    kept_.push_back(NewBytes(templates_->KeptTokenBytes(options_.keep) * padded_tokens));
  }
  MT_RETURN_IF_ERROR(templates_->BindBatch(batch, tables_->data(), Whole()));
  MicroBatch bound = batch;
  bound.device_tables = tables_->data();
  return bound;
}

absl::Status CudaModelForTest::Forward(const MicroBatch& bound) {
  MT_RETURN_IF_ERROR(templates_->EmbedForward(weights_.front()->data(), bound,
                                              boundaries_.front()->data(), Whole()));
  for (int layer = 1; layer <= layout_.layer_count(); ++layer) {
    workspace_->Poison();
    MT_RETURN_IF_ERROR(
        templates_->LayerForward(Layer(layer), bound, boundaries_[layer]->data(), Whole()));
  }
  workspace_->Poison();
  return absl::OkStatus();
}

void CudaModelForTest::PoisonGradients() {
  for (int unit = 1; unit <= layout_.head_unit(); ++unit) {
    gradients_[unit]->Poison();
  }
  tied_gradient_->Poison();
}

absl::Status CudaModelForTest::Backward(const MicroBatch& bound, void* hidden_gradient) {
  for (int layer = layout_.layer_count(); layer >= 1; --layer) {
    workspace_->Poison();
    MT_RETURN_IF_ERROR(templates_->LayerBackward(Layer(layer), bound, hidden_gradient,
                                                 gradients_[layer]->data(), Whole()));
  }
  return templates_->EmbedBackward(bound, hidden_gradient, gradients_.front()->data(), Whole());
}

absl::StatusOr<HeadResult> CudaModelForTest::Run(const MicroBatch& batch, double loss_scale) {
  MT_ASSIGN_OR_RETURN(const MicroBatch bound, Bind(batch));
  MT_RETURN_IF_ERROR(Forward(bound));
  if (options_.overwrites_gradients) {
    PoisonGradients();
  }
  DeviceNumbers hidden_gradient(dtype_,
                                static_cast<int64_t>(batch.tokens.size()) * config_.hidden_size,
                                options_.shift_bytes);
  float* matrix_gradient = tied_gradient_->data();
  if (!layout_.tied) {
    matrix_gradient =
        gradients_.back()->data() + layout_.units.back().Find(TensorRole::kHead)->offset_elements;
  }
  MT_RETURN_IF_ERROR(templates_->Head(LossInput(),
                                      {.head = gradients_.back()->data(),
                                       .matrix = matrix_gradient,
                                       .hidden = hidden_gradient.data(),
                                       .loss_scale = loss_scale,
                                       .overwrites = options_.overwrites_gradients},
                                      bound, Whole()));
  MT_RETURN_IF_ERROR(Backward(bound, hidden_gradient.data()));
  return DownloadResult();
}

absl::StatusOr<HeadResult> CudaModelForTest::Evaluate(const MicroBatch& batch) {
  MT_ASSIGN_OR_RETURN(const MicroBatch bound, Bind(batch));
  MT_RETURN_IF_ERROR(Forward(bound));
  MT_RETURN_IF_ERROR(templates_->HeadLoss(LossInput(), bound, Whole()));
  return DownloadResult();
}

ModelTemplates::LayerArguments CudaModelForTest::Layer(int layer) {
  return {.unit = layer,
          .weights = weights_[layer]->data(),
          .input = boundaries_[layer - 1]->data(),
          .kept = {.level = options_.keep, .data = kept_[layer]->data()},
          .overwrites_gradients = options_.overwrites_gradients};
}

ModelTemplates::HeadInput CudaModelForTest::LossInput() {
  const void* matrix = weights_.front()->data();
  if (!layout_.tied) {
    matrix = weights_.back()->data() +
             layout_.units.back().Find(TensorRole::kHead)->offset_elements * SizeBytes(dtype_);
  }
  return {.head_weights = weights_.back()->data(),
          .matrix = matrix,
          .hidden = boundaries_.back()->data(),
          .result = reinterpret_cast<HeadResult*>(result_->data())};
}

Workspace CudaModelForTest::Whole() {
  return {.data = workspace_->data(), .size_bytes = workspace_bytes_, .stream = nullptr};
}

HeadResult CudaModelForTest::DownloadResult() {
  const std::vector<unsigned char> bytes = result_->Download();
  HeadResult result;
  std::memcpy(&result, bytes.data(), sizeof result);
  return result;
}

}  // namespace megatrain
