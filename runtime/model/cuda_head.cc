#include "runtime/model/cuda_head.h"

#include <algorithm>

#include "runtime/base/status_macros.h"
#include "runtime/kernels/clear.h"
#include "runtime/kernels/cross_entropy.h"
#include "runtime/kernels/rms_norm.h"
#include "runtime/kernels/rows.h"

namespace megatrain {
namespace {

class HeadCall {
 public:
  HeadCall(const CudaModel& model, const CudaHeadInput& input, const CudaHeadGradients* gradients,
           const HeadBuffers& buffers, cudaStream_t stream)
      : model_(model),
        input_(input),
        gradients_(gradients),
        buffers_(buffers),
        stream_(stream),
        width_(model.shape.hidden_size),
        dtype_(model.shape.attention.dtype) {}

  absl::Status Run() {
    if (gradients_ != nullptr) {
      MT_RETURN_IF_ERROR(ClearGradients());
    }
    if (input_.loss_count > 0) {
      MT_RETURN_IF_ERROR(RunRows());
    }
    return LaunchSumLosses(buffers_.losses, input_.loss_count, input_.result, stream_);
  }

 private:
  // What is only added to below. The matrix's first chunk overwrites, where there is one.
  absl::Status ClearGradients() {
    MT_RETURN_IF_ERROR(Clear(gradients_->hidden, gradients_->tokens));
    if (!gradients_->overwrites) {
      return absl::OkStatus();
    }
    MT_RETURN_IF_ERROR(ClearFloats(gradients_->norm, width_, stream_));
    if (input_.loss_count > 0) {
      return absl::OkStatus();
    }
    return ClearFloats(gradients_->matrix, model_.shape.vocab_size * width_, stream_);
  }

  absl::Status RunRows() {
    MT_RETURN_IF_ERROR(NormRows());
    for (int64_t first = 0; first < input_.loss_count; first += buffers_.chunk_rows) {
      const int64_t count = std::min(buffers_.chunk_rows, input_.loss_count - first);
      MT_RETURN_IF_ERROR(RunChunk(first, count));
    }
    return gradients_ == nullptr ? absl::OkStatus() : BackwardNorm();
  }

  absl::Status NormRows() {
    MT_RETURN_IF_ERROR(LaunchGatherRows(input_.hidden, LossRows(), buffers_.rows, stream_));
    return LaunchRmsNormForward({.x = buffers_.rows,
                                 .weight = input_.norm,
                                 .normed = buffers_.normed,
                                 .inverse_rms = buffers_.rms,
                                 .rows = input_.loss_count,
                                 .width = width_,
                                 .epsilon = model_.norm_epsilon,
                                 .dtype = dtype_},
                                stream_);
  }

  // Losses of `count` rows from `first` on; with gradients also the matrix's, and the rows of
  // `normed_gradient`.
  absl::Status RunChunk(int64_t first, int64_t count) {
    const int64_t vocab = model_.shape.vocab_size;
    const MatrixView normed = ChunkOf(buffers_.normed, first, count);
    const MatrixView matrix = DenseMatrix(input_.matrix, vocab, width_);
    const MatrixView logits = DenseMatrix(buffers_.logits, count, vocab);
    MT_RETURN_IF_ERROR(
        model_.matmul->Forward(normed, matrix, logits, {.float_output = true}, dtype_, Context()));
    const bool backward = gradients_ != nullptr;
    MT_RETURN_IF_ERROR(LaunchCrossEntropy({.logits = buffers_.logits,
                                           .targets = input_.loss_targets + first,
                                           .losses = buffers_.losses + first,
                                           .gradient = backward ? buffers_.logit_gradient : nullptr,
                                           .gradient_stride = buffers_.logit_gradient_stride,
                                           .scale = backward ? gradients_->loss_scale : 0,
                                           .rows = count,
                                           .vocab = vocab,
                                           .dtype = dtype_},
                                          stream_));
    if (!backward) {
      return absl::OkStatus();
    }
    MatrixView gradient = DenseMatrix(buffers_.logit_gradient, count, vocab);
    gradient.stride = buffers_.logit_gradient_stride;
    MT_RETURN_IF_ERROR(model_.matmul->BackwardInput(gradient, matrix,
                                                    ChunkOf(buffers_.normed_gradient, first, count),
                                                    /*accumulate=*/false, dtype_, Context()));
    return model_.matmul->BackwardWeight(gradient, normed, gradients_->matrix,
                                         /*accumulate=*/first > 0 || !gradients_->overwrites,
                                         dtype_, Context());
  }

  absl::Status BackwardNorm() {
    void* const row_gradients = buffers_.normed;  // whose values are no longer needed
    MT_RETURN_IF_ERROR(Clear(row_gradients, input_.loss_count));
    MT_RETURN_IF_ERROR(LaunchRmsNormBackward({.x = buffers_.rows,
                                              .weight = input_.norm,
                                              .inverse_rms = buffers_.rms,
                                              .normed_gradient = buffers_.normed_gradient,
                                              .x_gradient = row_gradients,
                                              .normed = nullptr,
                                              .weight_gradient = gradients_->norm,
                                              .scratch = buffers_.scratch,
                                              .rows = input_.loss_count,
                                              .width = width_,
                                              .dtype = dtype_},
                                             stream_));
    return LaunchScatterRows(row_gradients, LossRows(), gradients_->hidden, stream_);
  }

  absl::Status Clear(void* rows, int64_t count) {
    return ClearBytes(rows, count * width_ * SizeBytes(dtype_), stream_);
  }

  RowIndices LossRows() const {
    return {.rows = input_.loss_positions,
            .count = input_.loss_count,
            .width = width_,
            .dtype = dtype_};
  }

  MatrixView ChunkOf(void* rows, int64_t first, int64_t count) const {
    return DenseMatrix(static_cast<char*>(rows) + first * width_ * SizeBytes(dtype_), count,
                       width_);
  }

  MatmulContext Context() const { return {.scratch = buffers_.scratch, .stream = stream_}; }

  const CudaModel& model_;
  const CudaHeadInput& input_;
  const CudaHeadGradients* const gradients_;
  const HeadBuffers& buffers_;
  const cudaStream_t stream_;
  const int64_t width_;
  const ComputeDtype dtype_;
};

}  // namespace

absl::Status RunCudaHead(const CudaModel& model, const CudaHeadInput& input,
                         const CudaHeadGradients* gradients, const HeadBuffers& buffers,
                         cudaStream_t stream) {
  return HeadCall(model, input, gradients, buffers, stream).Run();
}

}  // namespace megatrain
