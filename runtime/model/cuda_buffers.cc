#include "runtime/model/cuda_buffers.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status_macros.h"
#include "runtime/config/model_layout.h"
#include "runtime/kernels/matmul_scratch.h"
#include "runtime/kernels/scratch_size.h"
#include "runtime/model/carver.h"

namespace megatrain {
namespace {

constexpr int64_t kFloatBytes = 4;

// Hands out matrices of one row count in compute dtype.
class MatrixCarver {
 public:
  MatrixCarver(Carver* carver, int64_t rows, ComputeDtype dtype)
      : carver_(carver), row_bytes_(rows * SizeBytes(dtype)), rows_(rows) {}

  void* Matrix(int64_t width) { return carver_->Take(row_bytes_ * width); }
  float* Floats(int64_t width) { return carver_->TakeArray<float>(rows_ * width); }

 private:
  Carver* const carver_;
  const int64_t row_bytes_;
  const int64_t rows_;
};

int64_t RoundUpToActivations(int64_t tokens) {
  constexpr int64_t kStep = kActivationAlignmentTokens;
  return (tokens + kStep - 1) / kStep * kStep;
}

int64_t LayerScratchBytes(const CudaShape& shape, int64_t tokens) {
  return std::max({kMatmulScratchBytes, AttentionScratchBytes(shape.attention),
                   RmsNormBackwardScratchBytes(tokens, shape.hidden_size),
                   BiasBackwardScratchBytes(tokens, shape.attention.QkvWidth())});
}

// What a layer's matrices lie in.
struct LayerMemory {
  KeepLevel level;
  MatrixCarver kept;
  MatrixCarver own;

  bool Keeps(KeepLevel least) const { return level >= least; }
  // Of what is kept from that level on.
  MatrixCarver& From(KeepLevel least) { return Keeps(least) ? kept : own; }
};

// The two halves of a layer take the same memory, of `own_carver`, past what both need.
void PlaceHalves(const CudaShape& shape, LayerMemory* memory, Carver* own_carver,
                 LayerBuffers* buffers) {
  const int64_t d = shape.hidden_size;
  const int64_t halves = own_carver->next();
  buffers->attention_normed = memory->From(KeepLevel::kAll).Matrix(d);
  buffers->attention_normed_gradient = memory->own.Matrix(d);
  buffers->attention_out_gradient = memory->own.Matrix(shape.attention.OutWidth());
  buffers->qkv_gradient = memory->own.Matrix(shape.attention.QkvWidth());
  own_carver->GoBack(halves);
  buffers->gate_up = memory->From(KeepLevel::kProducts).Matrix(2 * shape.mlp_width);
  buffers->mlp_normed = memory->From(KeepLevel::kAll).Matrix(d);
  buffers->activated_gradient = memory->own.Matrix(std::max(shape.mlp_width, d));
  buffers->mlp_normed_gradient = buffers->activated_gradient;
  buffers->activated = memory->Keeps(KeepLevel::kAll) ? memory->kept.Matrix(shape.mlp_width)
                                                      : buffers->activated_gradient;
}

}  // namespace

absl::Status CheckCudaTrainable(const ModelConfig& config) {
  constexpr int64_t kVectorElements = 8;  // 16 bytes of bf16: what the kernels load at once
  constexpr int64_t kMaxHeadDim = 256;
  MT_RETURN_IF_ERROR(CheckTrainable(config));
  std::vector<std::string> lacks;
  const auto require_multiple = [&](const char* what, int64_t value, int64_t divisor) {
    if (value % divisor != 0) {
      lacks.push_back(absl::StrCat(what, " = ", value, " (no multiple of ", divisor, ")"));
    }
  };
  const auto require_at_most = [&](const char* what, int64_t value, int64_t limit) {
    if (value > limit) {
      lacks.push_back(absl::StrCat(what, " = ", value, " (above ", limit, ")"));
    }
  };
  require_multiple("hidden_size", config.hidden_size, kVectorElements);
  require_multiple("intermediate_size", config.mlp_width, kVectorElements);
  require_multiple("head_dim", config.head_dim, kVectorElements);
  require_at_most("hidden_size", config.hidden_size, kMaxCudaHiddenSize);
  require_at_most("head_dim", config.head_dim, kMaxHeadDim);
  if (config.qkv_bias) {
    // The biases are one vector: no padding may lie between them. Between the matrices there is
    // none, for both their dimensions are multiples of 8.
    require_multiple("biases of q_proj", config.head_count * config.head_dim,
                     kTensorAlignmentElements);
    require_multiple("biases of k_proj", config.kv_head_count * config.head_dim,
                     kTensorAlignmentElements);
  }
  if (lacks.empty()) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(absl::StrCat(
      "this model cannot be trained on CUDA yet; the engine lacks: ", absl::StrJoin(lacks, ", ")));
}

CudaShape MakeCudaShape(const ModelConfig& config, ComputeDtype dtype, AttentionMode attention,
                        int64_t max_micro_batch_tokens) {
  return {.hidden_size = config.hidden_size,
          .mlp_width = config.mlp_width,
          .vocab_size = config.vocab_size,
          .attention = {.max_tokens = max_micro_batch_tokens,
                        .heads = static_cast<int>(config.head_count),
                        .kv_heads = static_cast<int>(config.kv_head_count),
                        .head_dim = static_cast<int>(config.head_dim),
                        .dtype = dtype,
                        .mode = attention}};
}

LayerBuffers PlaceLayer(const CudaShape& shape, int64_t tokens, Kept kept, void* workspace) {
  const ComputeDtype dtype = shape.attention.dtype;
  Carver own_carver(workspace);
  Carver kept_carver(kept.data, Carver::kBaseAlignmentBytes);
  // Without gaps: so many rows of any width are a multiple of the alignment.
  const int64_t kept_rows = RoundUpToActivations(tokens);
  LayerMemory memory = {.level = kept.level,
                        .kept = MatrixCarver(&kept_carver, kept_rows, dtype),
                        .own = MatrixCarver(&own_carver, tokens, dtype)};
  LayerBuffers buffers = {};
  buffers.scratch = own_carver.Take(LayerScratchBytes(shape, tokens));
  buffers.attention_out = memory.From(KeepLevel::kAttention).Matrix(shape.attention.OutWidth());
  buffers.log_sum_exp = memory.From(KeepLevel::kAttention).Floats(shape.attention.heads);
  buffers.qkv = memory.From(KeepLevel::kProjections).Matrix(shape.attention.QkvWidth());
  buffers.attention_rms = memory.From(KeepLevel::kProjections).Floats(1);
  buffers.middle = memory.From(KeepLevel::kProducts).Matrix(shape.hidden_size);
  buffers.mlp_rms = memory.From(KeepLevel::kProducts).Floats(1);
  PlaceHalves(shape, &memory, &own_carver, &buffers);
  buffers.workspace_bytes = own_carver.size_bytes();
  buffers.kept_token_bytes = kept_carver.size_bytes() / kept_rows;
  return buffers;
}

HeadBuffers PlaceHead(const CudaShape& shape, int64_t loss_tokens, void* workspace) {
  const ComputeDtype dtype = shape.attention.dtype;
  Carver carver(workspace);
  MatrixCarver rows(&carver, loss_tokens, dtype);
  HeadBuffers buffers = {};
  buffers.chunk_rows = std::min(loss_tokens, HeadChunkRowsOnCuda(shape.vocab_size));
  buffers.scratch = carver.Take(
      std::max(kMatmulScratchBytes, RmsNormBackwardScratchBytes(loss_tokens, shape.hidden_size)));
  buffers.rows = rows.Matrix(shape.hidden_size);
  buffers.normed = rows.Matrix(shape.hidden_size);
  buffers.normed_gradient = rows.Matrix(shape.hidden_size);
  buffers.rms = rows.Floats(1);
  buffers.losses = rows.Floats(1);
  MatrixCarver chunk(&carver, buffers.chunk_rows, dtype);
  buffers.logits = chunk.Floats(shape.vocab_size);
  const bool in_place = dtype == ComputeDtype::kFloat32 || shape.vocab_size <= kMaxVocabInPlace;
  const int64_t logit_elements = kFloatBytes / SizeBytes(dtype);  // that a logit has room for
  buffers.logit_gradient = in_place ? buffers.logits : chunk.Matrix(shape.vocab_size);
  buffers.logit_gradient_stride = shape.vocab_size * (in_place ? logit_elements : 1);
  buffers.workspace_bytes = carver.size_bytes();
  return buffers;
}

int64_t HeadChunkRowsOnCuda(int64_t vocab_size) {
  // Large products for speed: every chunk reads and writes the matrix's whole gradient, which at
  // 2,048 rows costs as much as a third of the product. But at most 2.6 GB of fp32 logits.
  constexpr int64_t kMostRows = 4096;
  constexpr int64_t kMostElements = 2'600'000'000 / kFloatBytes;
  constexpr int64_t kRowStep = 128;
  const int64_t rows = kMostElements / vocab_size / kRowStep * kRowStep;
  return std::clamp(rows, kRowStep, kMostRows);
}

int64_t CudaWorkspaceBytes(const CudaShape& shape, int64_t max_loss_tokens) {
  const int64_t tokens = shape.attention.max_tokens;
  return std::max(PlaceLayer(shape, tokens, Kept(), nullptr).workspace_bytes,
                  PlaceHead(shape, max_loss_tokens, nullptr).workspace_bytes);
}

int64_t CudaKeptTokenBytes(const CudaShape& shape, KeepLevel level) {
  return PlaceLayer(shape, 1, {.level = level, .data = nullptr}, nullptr).kept_token_bytes;
}

}  // namespace megatrain
