// Forward and backward of one decoder layer of the Llama and Qwen2 kind on the GPU: pre-norm
// attention and SwiGLU MLP, each added to the hidden states. What runs between two matrix products
// is one kernel; the residual branches are added within the products.

#ifndef RUNTIME_MODEL_CUDA_LAYER_H_
#define RUNTIME_MODEL_CUDA_LAYER_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "runtime/kernels/matmul.h"
#include "runtime/kernels/packed_attention_interface.h"
#include "runtime/kernels/rms_norm.h"
#include "runtime/kernels/rope.h"
#include "runtime/model/cuda_buffers.h"
#include "runtime/model/cuda_model.h"
#include "runtime/model/layer_template.h"

namespace megatrain {

// One call's input, all of it device memory.
struct CudaLayerInput {
  LayerWeights weights;
  const void* hidden;        // [t, d]
  const int32_t* positions;  // [t]
  AttentionBatch batch;
  bool overwrites_gradients;
  int32_t* mark;  // of the input, as in ModelTemplates::LayerArguments; null in backward
};

// One call. Launches on `stream` and returns.
class CudaLayer {
 public:
  // `buffers` are PlaceLayer's for the batch's tokens and the level of Kept that is passed below.
  CudaLayer(const CudaModel& model, const CudaLayerInput& input, const LayerBuffers& buffers,
            cudaStream_t stream);

  // Writes `output`, [t, d], and what is kept.
  absl::Status Forward(void* output);

  // `hidden_gradient` is d loss / d output before and d loss / d input after; adds to `gradients`,
  // or writes them when the input says that they hold nothing yet. Computes again what `level` does
  // not keep, with Forward's bits, and overwrites what it keeps.
  absl::Status Backward(KeepLevel level, void* hidden_gradient, const LayerGradients& gradients);

 private:
  // The parts of Forward. Each writes buffers that those after it read.
  absl::Status ProjectToHeads();
  absl::Status Attend();
  absl::Status ProjectToGateAndUp();

  // `makes_again`: what norms and SwiGLU made in forward, which is not kept.
  absl::Status BackwardMlp(bool makes_again, void* hidden_gradient,
                           const LayerGradients& gradients);
  absl::Status BackwardAttention(bool makes_again, void* hidden_gradient,
                                 const LayerGradients& gradients);

  // Of `qkv_gradient`, whose sums over tokens are added to `bias_gradient` where it is not null.
  absl::Status RotateBackward(float* bias_gradient);

  // `norm` names the tensors; its gradient is added to `hidden_gradient`.
  absl::Status BackwardNorm(RmsNormBackward norm, void* hidden_gradient);
  absl::Status Norm(const void* x, const void* weight, void* normed, float* inverse_rms,
                    int32_t* mark);

  // Tokens' rows of a dense activation.
  MatrixView Rows(const void* data, int64_t width) const;
  // y = x weight^T, with what the options add.
  absl::Status Multiply(const MatrixView& x, const void* weight, const MatrixView& y,
                        const MatrixMultiplier::ForwardOptions& options);
  // dx = dy weight.
  absl::Status MultiplyBack(const MatrixView& dy, const void* weight, const MatrixView& dx);
  absl::Status ClearVectorGradients(const LayerGradients& gradients);
  // weight_gradient += dy^T x, or = where gradients are written.
  absl::Status AddWeightGradient(const MatrixView& dy, const MatrixView& x, float* weight_gradient);

  // Of the query and key heads in a buffer like `qkv`.
  Rotation RotationOf(void* qkv) const;
  AttentionTensors Tensors() const;

  const CudaModel& model_;
  const CudaLayerInput& input_;
  const LayerBuffers& buffers_;
  const cudaStream_t stream_;
  const int64_t tokens_;
  const int64_t width_;      // d
  const int64_t mlp_width_;  // f
  const int64_t out_width_;  // H C
  const int64_t qkv_width_;  // (H + 2 K) C
  const ComputeDtype dtype_;
};

}  // namespace megatrain

#endif  // RUNTIME_MODEL_CUDA_LAYER_H_
