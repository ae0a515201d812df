// Where the CUDA templates' buffers lie in the memory that a call is given. Pure arithmetic without
// CUDA and LibTorch: run time and planner ask the same functions, so that they cannot disagree.

#ifndef RUNTIME_MODEL_CUDA_BUFFERS_H_
#define RUNTIME_MODEL_CUDA_BUFFERS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "runtime/config/model_config.h"
#include "runtime/kernels/attention_shape.h"
#include "runtime/model/layer_template.h"

namespace megatrain {

// The largest micro-batch that templates are made for.
struct MicroBatchLimits {
  int64_t tokens;
  int64_t document_tokens;
  int64_t documents;
};

// The norm's kernel keeps a row in registers.
inline constexpr int64_t kMaxCudaHiddenSize = 32768;

// OK when the CUDA templates can compute this shape, else UNIMPLEMENTED that names what they lack.
absl::Status CheckCudaTrainable(const ModelConfig& config);

// What of a model decides the buffers.
struct CudaShape {
  int64_t hidden_size;
  int64_t mlp_width;
  int64_t vocab_size;
  AttentionShape attention;  // with the dtype of all and the most tokens
};
CudaShape MakeCudaShape(const ModelConfig& config, ComputeDtype dtype, AttentionMode attention,
                        int64_t max_micro_batch_tokens);

// One layer's activations, t rows each. All are in compute dtype but for the floats.
struct LayerBuffers {
  // In Kept where its level says so, else in the workspace. There, what the attention half alone
  // needs and what the MLP alone needs, here and below, share memory: never are both alive.
  void* attention_out;     // [t, H C]
  float* log_sum_exp;      // t H, in attention's own order
  void* qkv;               // [t, (H + 2 K) C], rotated
  float* attention_rms;    // [t], inverse root mean squares of the layer's input
  void* middle;            // [t, d], hidden states between attention and MLP
  float* mlp_rms;          // [t], of `middle`
  void* gate_up;           // [t, 2 f], the MLP's; at last its gradient
  void* attention_normed;  // [t, d], attention's
  void* mlp_normed;        // [t, d], the MLP's
  void* activated;         // [t, f], the MLP's

  // Of the attention half.
  void* attention_normed_gradient;  // [t, d]
  void* attention_out_gradient;     // [t, H C]
  void* qkv_gradient;               // [t, (H + 2 K) C]

  // Of the MLP. The first is `activated` where that is not kept, and gives way to it in backward;
  // it is dead before `mlp_normed_gradient` lives: they share memory.
  void* activated_gradient;   // [t, f]
  void* mlp_normed_gradient;  // [t, d]

  void* scratch;  // of one kernel at a time
  int64_t workspace_bytes;
  int64_t kept_token_bytes;  // ModelTemplates::KeptTokenBytes
};
LayerBuffers PlaceLayer(const CudaShape& shape, int64_t tokens, Kept kept, void* workspace);

// The head's, for n tokens with a loss and a chunk of c of them at a time.
struct HeadBuffers {
  void* rows;             // [n, d], the hidden states with a loss
  void* normed;           // [n, d]; at last the gradient of `rows`
  void* normed_gradient;  // [n, d]
  float* rms;             // [n], inverse root mean squares of `rows`
  float* losses;          // [n]
  float* logits;          // [c, V]
  void* logit_gradient;   // [c, V]; at the start of each row of `logits` up to kMaxVocabInPlace
  int64_t logit_gradient_stride;  // elements from a row to the next

  int64_t chunk_rows;  // c
  void* scratch;       // of one kernel at a time
  int64_t workspace_bytes;
};
HeadBuffers PlaceHead(const CudaShape& shape, int64_t loss_tokens, void* workspace);

// Rows of logits that the head holds at once, at most.
int64_t HeadChunkRowsOnCuda(int64_t vocab_size);

// Workspace that no call of the CUDA templates exceeds, for micro-batches within the shape's
// tokens, of which at most `max_loss_tokens` have a loss.
int64_t CudaWorkspaceBytes(const CudaShape& shape, int64_t max_loss_tokens);

// What a layer keeps of a token at this level: ModelTemplates::KeptTokenBytes.
int64_t CudaKeptTokenBytes(const CudaShape& shape, KeepLevel level);

}  // namespace megatrain

#endif  // RUNTIME_MODEL_CUDA_BUFFERS_H_
