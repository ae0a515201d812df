#ifndef RUNTIME_MODEL_CUDA_TEMPLATES_H_
#define RUNTIME_MODEL_CUDA_TEMPLATES_H_

#include <memory>

#include "absl/status/statusor.h"
#include "runtime/config/model_config.h"
#include "runtime/config/model_layout.h"
#include "runtime/kernels/attention_shape.h"
#include "runtime/kernels/matmul_choices.h"
#include "runtime/model/cuda_buffers.h"
#include "runtime/model/layer_template.h"

namespace megatrain {

// The templates of a dense decoder of the Llama or Qwen2 kind on the current CUDA device. Every
// call launches on its workspace's stream and returns. `layout` is MakeModelLayout of `config`.
// Batches pass Prepare, then BindBatch, before any other call; workspaces are CudaWorkspaceBytes.
// Device memory of their own: the rotary table alone. Equal inputs and `choices` give equal bits,
// with AttentionMode::kDeterministic in all they compute. UNIMPLEMENTED where CheckCudaTrainable
// says so.
absl::StatusOr<std::unique_ptr<ModelTemplates>> MakeCudaTemplates(
    const ModelConfig& config, const ModelLayout& layout, ComputeDtype dtype,
    AttentionMode attention, const MicroBatchLimits& limits, MatmulChoices choices = {});

}  // namespace megatrain

#endif  // RUNTIME_MODEL_CUDA_TEMPLATES_H_
