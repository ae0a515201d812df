// One decoder layer of the Llama and Qwen2 kind: pre-norm attention and SwiGLU MLP, each added to
// the hidden states. Called within RunInWorkspace.
//
// Activations are fp32 inside a layer also for bf16 weights: the CPU's matrix products are. Between
// layers they are what the caller keeps.

#ifndef RUNTIME_MODEL_DECODER_LAYER_H_
#define RUNTIME_MODEL_DECODER_LAYER_H_

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <span>

#include "runtime/config/model_config.h"
#include "runtime/config/model_layout.h"
#include "runtime/ops/rope.h"

namespace megatrain {

// The tensors of a layer: weights in compute dtype, or their gradient accumulators in fp32.
// Biases are undefined where the model has none.
struct LayerTensors {
  at::Tensor attention_norm;
  at::Tensor query;
  at::Tensor query_bias;
  at::Tensor key;
  at::Tensor key_bias;
  at::Tensor value;
  at::Tensor value_bias;
  at::Tensor output;
  at::Tensor mlp_norm;
  at::Tensor gate;
  at::Tensor up;
  at::Tensor down;
};

// Names the tensors of a unit at `data`, without copies.
LayerTensors BindLayer(const UnitLayout& unit, const void* data, c10::ScalarType dtype);

// One call's input besides the weights.
struct LayerInput {
  const ModelConfig& config;
  at::Tensor hidden_TD;  // fp32
  std::span<const int32_t> document_offsets;
  RopeTable rope;
};

// Writes `output_TD`, fp32.
void DecoderLayerForward(const LayerInput& input, const LayerTensors& weights,
                         const at::Tensor& output_TD);

// Computes the layer again from its input and adds to `gradients`. `hidden_gradient_TD` is
// d loss / d output before and d loss / d input after, fp32.
void DecoderLayerBackward(const LayerInput& input, const LayerTensors& weights,
                          const at::Tensor& hidden_gradient_TD, const LayerTensors& gradients);

}  // namespace megatrain

#endif  // RUNTIME_MODEL_DECODER_LAYER_H_
