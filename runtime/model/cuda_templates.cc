#include "runtime/model/cuda_templates.h"

#include <cuda_runtime_api.h>
#include <vector_types.h>

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/kernels/cuda_status.h"
#include "runtime/kernels/matmul.h"
#include "runtime/kernels/packed_attention.h"
#include "runtime/kernels/rms_norm.h"
#include "runtime/kernels/rows.h"
#include "runtime/model/cuda_batch_tables.h"
#include "runtime/model/cuda_batch_upload.h"
#include "runtime/model/cuda_head.h"
#include "runtime/model/cuda_layer.h"
#include "runtime/model/cuda_model.h"
#include "runtime/model/rope_frequencies.h"

namespace megatrain {
namespace {

static_assert(kMaxCudaHiddenSize == kMaxRmsNormWidth);

struct FreeDeviceMemory {
  void operator()(float2* data) const { cudaFree(data); }
};
using RopeTable = std::unique_ptr<float2, FreeDeviceMemory>;

// For positions below `positions`, uploaded when this returns.
absl::StatusOr<RopeTable> MakeRopeTable(const ModelConfig& config, int64_t positions) {
  const std::vector<float> values =
      RopeTableValues(positions, RopeFrequencies(config.rope, config.head_dim));
  const size_t size_bytes = values.size() * sizeof(float);
  void* data = nullptr;
  MT_RETURN_IF_ERROR(CudaStatus(cudaMalloc(&data, size_bytes), "cudaMalloc of the rotary table"));
  RopeTable table(static_cast<float2*>(data));
  MT_RETURN_IF_ERROR(CudaStatus(cudaMemcpy(data, values.data(), size_bytes, cudaMemcpyHostToDevice),
                                "cudaMemcpy of the rotary table"));
  // The copy may still be on its way from staging memory: no stream of the templates waits for it.
  MT_RETURN_IF_ERROR(CudaStatus(cudaDeviceSynchronize(), "cudaDeviceSynchronize"));
  return table;
}

// What the templates own of the device.
struct Parts {
  std::unique_ptr<MatrixMultiplier> matmul;
  std::unique_ptr<PackedAttention> attention;
  std::unique_ptr<BatchUploader> uploader;
  RopeTable rope_table;
};

cudaStream_t StreamOf(const Workspace& workspace) {
  return static_cast<cudaStream_t>(workspace.stream);
}

int64_t TokenCount(const MicroBatch& batch) { return static_cast<int64_t>(batch.tokens.size()); }

// One place for what attention prepares for and what its plan is found by later.
AttentionCounts CountsOf(const MicroBatch& batch) {
  return {.tokens = TokenCount(batch),
          .documents = static_cast<int64_t>(batch.document_offsets.size()) - 1,
          .longest = LongestDocument(batch)};
}

absl::Status CheckRoom(const char* what, int64_t needed_bytes, int64_t given_bytes) {
  if (needed_bytes <= given_bytes) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat("workspace exhausted: ", what, " needs ", needed_bytes,
                                          " bytes but was given ", given_bytes));
}

class CudaTemplates final : public ModelTemplates {
 public:
  CudaTemplates(const ModelConfig& config, const ModelLayout& layout, const CudaShape& shape,
                const MicroBatchLimits& limits, Parts parts)
      : layout_(layout),
        limits_(limits),
        parts_(std::move(parts)),
        model_({.shape = shape,
                .norm_epsilon = static_cast<float>(config.norm_epsilon),
                .matmul = parts_.matmul.get(),
                .attention = parts_.attention.get(),
                .rope_table = parts_.rope_table.get()}) {}

  absl::Status Prepare(const MicroBatch& batch) override {
    MT_RETURN_IF_ERROR(CheckMicroBatch(batch, model_.shape.vocab_size, limits_));
    return parts_.attention->Prepare(CountsOf(batch));
  }

  int64_t BatchTableBytes() const override {
    return MaxBatchTableBytes(model_.shape.attention, limits_);
  }

  absl::Status BindBatch(const MicroBatch& batch, void* tables, Workspace workspace) override {
    MT_ASSIGN_OR_RETURN(
        distinct_tokens_[tables],
        parts_.uploader->Upload(model_.shape.attention, batch, tables, StreamOf(workspace)));
    return absl::OkStatus();
  }

  bool writes_first_gradients() const override { return true; }
  bool marks_inputs() const override { return true; }

  int64_t KeptTokenBytes(KeepLevel level) const override {
    return CudaKeptTokenBytes(model_.shape, level);
  }

  absl::Status EmbedForward(const void* embedding_weights, const MicroBatch& batch, void* hidden,
                            Workspace workspace) override {
    const RowIndices tokens = {.rows = Tables(batch).tokens,
                               .count = TokenCount(batch),
                               .width = model_.shape.hidden_size,
                               .dtype = dtype()};
    return LaunchGatherRows(embedding_weights, tokens, hidden, StreamOf(workspace));
  }

  absl::Status EmbedBackward(const MicroBatch& batch, const void* hidden_gradient,
                             float* embedding_gradients, Workspace workspace) override {
    const BatchTables tables = Tables(batch);
    const SortedRows rows = {.order = tables.order,
                             .starts = tables.segment_starts,
                             .rows = tables.segment_tokens,
                             .segment_count = distinct_tokens_.at(batch.device_tables)};
    return LaunchAddRows(hidden_gradient, rows, model_.shape.hidden_size, dtype(),
                         embedding_gradients, StreamOf(workspace));
  }

  absl::Status LayerForward(const LayerArguments& arguments, const MicroBatch& batch, void* output,
                            Workspace workspace) override {
    const LayerBuffers buffers = Buffers(arguments, batch, workspace);
    MT_RETURN_IF_ERROR(CheckRoom("a layer", buffers.workspace_bytes, workspace.size_bytes));
    const CudaLayerInput input = LayerInput(arguments, batch);
    return CudaLayer(model_, input, buffers, StreamOf(workspace)).Forward(output);
  }

  absl::Status LayerBackward(const LayerArguments& arguments, const MicroBatch& batch,
                             void* hidden_gradient, float* gradients,
                             Workspace workspace) override {
    const LayerBuffers buffers = Buffers(arguments, batch, workspace);
    MT_RETURN_IF_ERROR(CheckRoom("a layer", buffers.workspace_bytes, workspace.size_bytes));
    const CudaLayerInput input = LayerInput(arguments, batch);
    return CudaLayer(model_, input, buffers, StreamOf(workspace))
        .Backward(arguments.kept.level, hidden_gradient,
                  BindGradients(Layer(arguments.unit), gradients));
  }

  absl::Status Head(const HeadInput& input, const HeadGradients& gradients, const MicroBatch& batch,
                    Workspace workspace) override {
    const CudaHeadGradients targets = {
        .norm = FindGradient(layout_.units.back(), TensorRole::kFinalNorm, gradients.head),
        .matrix = gradients.matrix,
        .hidden = gradients.hidden,
        .tokens = TokenCount(batch),
        .loss_scale = static_cast<float>(gradients.loss_scale),
        .overwrites = gradients.overwrites};
    return RunHead(input, &targets, batch, workspace);
  }

  absl::Status HeadLoss(const HeadInput& input, const MicroBatch& batch,
                        Workspace workspace) override {
    return RunHead(input, nullptr, batch, workspace);
  }

 private:
  ComputeDtype dtype() const { return model_.shape.attention.dtype; }

  const UnitLayout& Layer(int unit) const {
    MT_CHECK(unit >= 1 && unit <= layout_.layer_count());
    return layout_.units[unit];
  }

  BatchTables Tables(const MicroBatch& batch) const {
    MT_CHECK(batch.device_tables != nullptr);
    return PlaceBatchTables(model_.shape.attention, batch, const_cast<void*>(batch.device_tables));
  }

  LayerBuffers Buffers(const LayerArguments& arguments, const MicroBatch& batch,
                       const Workspace& workspace) const {
    return PlaceLayer(model_.shape, TokenCount(batch), arguments.kept, workspace.data);
  }

  CudaLayerInput LayerInput(const LayerArguments& arguments, const MicroBatch& batch) const {
    const BatchTables tables = Tables(batch);
    return {.weights = BindWeights(Layer(arguments.unit), arguments.weights, dtype()),
            .hidden = arguments.input,
            .positions = tables.positions,
            .batch = {.counts = CountsOf(batch), .tables = tables.attention},
            .overwrites_gradients = arguments.overwrites_gradients,
            .mark = arguments.input_mark};
  }

  absl::Status RunHead(const HeadInput& input, const CudaHeadGradients* gradients,
                       const MicroBatch& batch, const Workspace& workspace) {
    const BatchTables tables = Tables(batch);
    const CudaHeadInput head = {.norm = FindWeight(layout_.units.back(), TensorRole::kFinalNorm,
                                                   input.head_weights, dtype()),
                                .matrix = input.matrix,
                                .hidden = input.hidden,
                                .loss_positions = tables.loss_positions,
                                .loss_targets = tables.loss_targets,
                                .loss_count = static_cast<int64_t>(batch.loss_positions.size()),
                                .result = input.result};
    const HeadBuffers buffers = PlaceHead(model_.shape, head.loss_count, workspace.data);
    MT_RETURN_IF_ERROR(CheckRoom("the head", buffers.workspace_bytes, workspace.size_bytes));
    return RunCudaHead(model_, head, gradients, buffers, StreamOf(workspace));
  }

  const ModelLayout layout_;
  const MicroBatchLimits limits_;
  const Parts parts_;
  const CudaModel model_;
  std::map<const void*, int64_t> distinct_tokens_;  // of what BindBatch put into these tables
};

}  // namespace

absl::StatusOr<std::unique_ptr<ModelTemplates>> MakeCudaTemplates(
    const ModelConfig& config, const ModelLayout& layout, ComputeDtype dtype,
    AttentionMode attention, const MicroBatchLimits& limits, MatmulChoices choices) {
  MT_RETURN_IF_ERROR(CheckCudaTrainable(config));
  MT_CHECK(layout.layer_count() == config.layer_count);
  MT_CHECK(LiesFused(layout.units[1]));
  const CudaShape shape = MakeCudaShape(config, dtype, attention, limits.tokens);
  Parts parts;
  MT_ASSIGN_OR_RETURN(parts.matmul, MatrixMultiplier::Create(std::move(choices)));
  MT_ASSIGN_OR_RETURN(parts.attention, MakePackedAttention(shape.attention));
  MT_ASSIGN_OR_RETURN(parts.uploader,
                      BatchUploader::Create(MaxBatchTableBytes(shape.attention, limits)));
  MT_ASSIGN_OR_RETURN(parts.rope_table, MakeRopeTable(config, limits.document_tokens));
  return std::make_unique<CudaTemplates>(config, layout, shape, limits, std::move(parts));
}

}  // namespace megatrain
