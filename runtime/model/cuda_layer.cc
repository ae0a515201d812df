#include "runtime/model/cuda_layer.h"

#include "runtime/base/status_macros.h"
#include "runtime/kernels/clear.h"
#include "runtime/kernels/qkv_gradient.h"
#include "runtime/kernels/rms_norm.h"
#include "runtime/kernels/swiglu.h"

namespace megatrain {

CudaLayer::CudaLayer(const CudaModel& model, const CudaLayerInput& input,
                     const LayerBuffers& buffers, cudaStream_t stream)
    : model_(model),
      input_(input),
      buffers_(buffers),
      stream_(stream),
      tokens_(input.batch.counts.tokens),
      width_(model.shape.hidden_size),
      mlp_width_(model.shape.mlp_width),
      out_width_(model.shape.attention.OutWidth()),
      qkv_width_(model.shape.attention.QkvWidth()),
      dtype_(model.shape.attention.dtype) {}

absl::Status CudaLayer::Forward(void* output) {
  MT_RETURN_IF_ERROR(ProjectToHeads());
  MT_RETURN_IF_ERROR(Attend());
  MT_RETURN_IF_ERROR(ProjectToGateAndUp());
  MT_RETURN_IF_ERROR(LaunchSwigluForward(buffers_.gate_up, buffers_.activated, tokens_, mlp_width_,
                                         dtype_, stream_));
  const MatrixView middle = Rows(buffers_.middle, width_);
  return Multiply(Rows(buffers_.activated, mlp_width_), input_.weights.down, Rows(output, width_),
                  {.addend = &middle});
}

absl::Status CudaLayer::Backward(KeepLevel level, void* hidden_gradient,
                                 const LayerGradients& gradients) {
  if (level < KeepLevel::kProjections) {
    MT_RETURN_IF_ERROR(ProjectToHeads());
  }
  if (level < KeepLevel::kAttention) {
    MT_RETURN_IF_ERROR(Attend());
  }
  if (level < KeepLevel::kProducts) {
    MT_RETURN_IF_ERROR(ProjectToGateAndUp());
  }
  if (input_.overwrites_gradients) {
    MT_RETURN_IF_ERROR(ClearVectorGradients(gradients));
  }
  const bool makes_again = level < KeepLevel::kAll;
  MT_RETURN_IF_ERROR(BackwardMlp(makes_again, hidden_gradient, gradients));
  return BackwardAttention(makes_again, hidden_gradient, gradients);
}

absl::Status CudaLayer::ProjectToHeads() {
  MT_RETURN_IF_ERROR(Norm(input_.hidden, input_.weights.attention_norm, buffers_.attention_normed,
                          buffers_.attention_rms, input_.mark));
  MT_RETURN_IF_ERROR(Multiply(Rows(buffers_.attention_normed, width_), input_.weights.qkv,
                              Rows(buffers_.qkv, qkv_width_), {.bias = input_.weights.qkv_bias}));
  return LaunchRotateForward(RotationOf(buffers_.qkv), stream_);
}

absl::Status CudaLayer::Attend() {
  return model_.attention->Forward(Tensors(), input_.batch,
                                   {.scratch = buffers_.scratch, .stream = stream_});
}

absl::Status CudaLayer::ProjectToGateAndUp() {
  const MatrixView hidden = Rows(input_.hidden, width_);
  MT_RETURN_IF_ERROR(Multiply(Rows(buffers_.attention_out, out_width_), input_.weights.output,
                              Rows(buffers_.middle, width_), {.addend = &hidden}));
  MT_RETURN_IF_ERROR(Norm(buffers_.middle, input_.weights.mlp_norm, buffers_.mlp_normed,
                          buffers_.mlp_rms,
                          /*mark=*/nullptr));
  return Multiply(Rows(buffers_.mlp_normed, width_), input_.weights.gate_up,
                  Rows(buffers_.gate_up, 2 * mlp_width_), {});
}

absl::Status CudaLayer::BackwardMlp(bool makes_again, void* hidden_gradient,
                                    const LayerGradients& gradients) {
  const MatrixView y_gradient = Rows(hidden_gradient, width_);
  const MatrixView gate_up = Rows(buffers_.gate_up, 2 * mlp_width_);
  MT_RETURN_IF_ERROR(
      MultiplyBack(y_gradient, input_.weights.down, Rows(buffers_.activated_gradient, mlp_width_)));
  MT_RETURN_IF_ERROR(LaunchSwigluBackward({.gate_up = buffers_.gate_up,
                                           .activated_gradient = buffers_.activated_gradient,
                                           .activates_again = makes_again,
                                           .tokens = tokens_,
                                           .width = mlp_width_,
                                           .dtype = dtype_},
                                          stream_));
  MT_RETURN_IF_ERROR(
      AddWeightGradient(y_gradient, Rows(buffers_.activated, mlp_width_), gradients.down));
  MT_RETURN_IF_ERROR(
      MultiplyBack(gate_up, input_.weights.gate_up, Rows(buffers_.mlp_normed_gradient, width_)));
  MT_RETURN_IF_ERROR(BackwardNorm({.x = buffers_.middle,
                                   .weight = input_.weights.mlp_norm,
                                   .inverse_rms = buffers_.mlp_rms,
                                   .normed_gradient = buffers_.mlp_normed_gradient,
                                   .normed = makes_again ? buffers_.mlp_normed : nullptr,
                                   .weight_gradient = gradients.mlp_norm},
                                  hidden_gradient));
  return AddWeightGradient(gate_up, Rows(buffers_.mlp_normed, width_), gradients.gate_up);
}

absl::Status CudaLayer::BackwardAttention(bool makes_again, void* hidden_gradient,
                                          const LayerGradients& gradients) {
  const MatrixView middle_gradient = Rows(hidden_gradient, width_);
  const MatrixView qkv_gradient = Rows(buffers_.qkv_gradient, qkv_width_);
  MT_RETURN_IF_ERROR(MultiplyBack(middle_gradient, input_.weights.output,
                                  Rows(buffers_.attention_out_gradient, out_width_)));
  MT_RETURN_IF_ERROR(AddWeightGradient(middle_gradient, Rows(buffers_.attention_out, out_width_),
                                       gradients.output));
  MT_RETURN_IF_ERROR(model_.attention->Backward(Tensors(), input_.batch,
                                                {.scratch = buffers_.scratch, .stream = stream_}));
  MT_RETURN_IF_ERROR(RotateBackward(gradients.qkv_bias));
  MT_RETURN_IF_ERROR(MultiplyBack(qkv_gradient, input_.weights.qkv,
                                  Rows(buffers_.attention_normed_gradient, width_)));
  MT_RETURN_IF_ERROR(BackwardNorm({.x = input_.hidden,
                                   .weight = input_.weights.attention_norm,
                                   .inverse_rms = buffers_.attention_rms,
                                   .normed_gradient = buffers_.attention_normed_gradient,
                                   .normed = makes_again ? buffers_.attention_normed : nullptr,
                                   .weight_gradient = gradients.attention_norm},
                                  hidden_gradient));
  return AddWeightGradient(qkv_gradient, Rows(buffers_.attention_normed, width_), gradients.qkv);
}

absl::Status CudaLayer::RotateBackward(float* bias_gradient) {
  const Rotation rotation = RotationOf(buffers_.qkv_gradient);
  if (bias_gradient == nullptr) {
    return LaunchRotateBackward(rotation, stream_);
  }
  const AttentionShape& attention = model_.shape.attention;
  return LaunchRotateBackwardAndSum(
      {.rotation = rotation,
       .head_count = attention.heads + int64_t{2} * attention.kv_heads,
       .bias_gradient = bias_gradient,
       .scratch = buffers_.scratch},
      stream_);
}

absl::Status CudaLayer::BackwardNorm(RmsNormBackward norm, void* hidden_gradient) {
  norm.x_gradient = hidden_gradient;
  norm.scratch = buffers_.scratch;
  norm.rows = tokens_;
  norm.width = width_;
  norm.dtype = dtype_;
  return LaunchRmsNormBackward(norm, stream_);
}

absl::Status CudaLayer::Norm(const void* x, const void* weight, void* normed, float* inverse_rms,
                             int32_t* mark) {
  return LaunchRmsNormForward({.x = x,
                               .weight = weight,
                               .normed = normed,
                               .inverse_rms = inverse_rms,
                               .mark = mark,
                               .rows = tokens_,
                               .width = width_,
                               .epsilon = model_.norm_epsilon,
                               .dtype = dtype_},
                              stream_);
}

MatrixView CudaLayer::Rows(const void* data, int64_t width) const {
  return DenseMatrix(data, tokens_, width);
}

absl::Status CudaLayer::Multiply(const MatrixView& x, const void* weight, const MatrixView& y,
                                 const MatrixMultiplier::ForwardOptions& options) {
  return model_.matmul->Forward(x, DenseMatrix(weight, y.cols, x.cols), y, options, dtype_,
                                {.scratch = buffers_.scratch, .stream = stream_});
}

absl::Status CudaLayer::MultiplyBack(const MatrixView& dy, const void* weight,
                                     const MatrixView& dx) {
  return model_.matmul->BackwardInput(dy, DenseMatrix(weight, dy.cols, dx.cols), dx,
                                      /*accumulate=*/false, dtype_,
                                      {.scratch = buffers_.scratch, .stream = stream_});
}

absl::Status CudaLayer::AddWeightGradient(const MatrixView& dy, const MatrixView& x,
                                          float* weight_gradient) {
  return model_.matmul->BackwardWeight(dy, x, weight_gradient,
                                       /*accumulate=*/!input_.overwrites_gradients, dtype_,
                                       {.scratch = buffers_.scratch, .stream = stream_});
}

// The kernels of norms and biases only ever add.
absl::Status CudaLayer::ClearVectorGradients(const LayerGradients& gradients) {
  MT_RETURN_IF_ERROR(ClearFloats(gradients.attention_norm, width_, stream_));
  MT_RETURN_IF_ERROR(ClearFloats(gradients.mlp_norm, width_, stream_));
  if (gradients.qkv_bias == nullptr) {
    return absl::OkStatus();
  }
  return ClearFloats(gradients.qkv_bias, qkv_width_, stream_);
}

Rotation CudaLayer::RotationOf(void* qkv) const {
  const AttentionShape& attention = model_.shape.attention;
  return {.heads = qkv,
          .tokens = tokens_,
          .row_stride = qkv_width_,
          .head_count = attention.heads + attention.kv_heads,
          .head_dim = attention.head_dim,
          .table = model_.rope_table,
          .positions = input_.positions,
          .dtype = dtype_};
}

AttentionTensors CudaLayer::Tensors() const {
  return {.qkv = buffers_.qkv,
          .out = buffers_.attention_out,
          .log_sum_exp = buffers_.log_sum_exp,
          .out_gradient = buffers_.attention_out_gradient,
          .qkv_gradient = buffers_.qkv_gradient};
}

}  // namespace megatrain
