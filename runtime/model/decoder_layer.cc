#include "runtime/model/decoder_layer.h"

#include "runtime/ops/attention.h"
#include "runtime/ops/linear.h"
#include "runtime/ops/rms_norm.h"
#include "runtime/ops/swiglu.h"
#include "runtime/ops/tensor_view.h"

namespace megatrain {
namespace {

// What the attention half computes and its gradients need.
struct AttentionHalf {
  at::Tensor normed_TD;
  at::Tensor inverse_rms_T1;
  AttentionInput attention;
  AttentionResult result;
  at::Tensor mixed_TE;   // the heads' results side by side; E = H C
  at::Tensor hidden_TD;  // after the residual connection
};

struct MlpHalf {
  at::Tensor normed_TD;
  at::Tensor inverse_rms_T1;
  at::Tensor gate_TF;
  at::Tensor up_TF;
};

at::Tensor Project(const at::Tensor& x_TD, const at::Tensor& weight, const at::Tensor& bias) {
  const at::Tensor y = Uninitialized({x_TD.size(0), weight.size(0)}, at::kFloat);
  if (bias.defined()) {
    LinearForward(x_TD, weight, bias, y);
  } else {
    LinearForward(x_TD, weight, y);
  }
  return y;
}

at::Tensor ProjectToHeads(const at::Tensor& x_TD, const at::Tensor& weight, const at::Tensor& bias,
                          int64_t head_dim) {
  return Project(x_TD, weight, bias).view({x_TD.size(0), -1, head_dim});
}

AttentionHalf ForwardAttention(const LayerInput& input, const LayerTensors& weights) {
  const at::Tensor& x_TD = input.hidden_TD;
  const int64_t head_dim = input.config.head_dim;
  AttentionHalf half;
  half.normed_TD = Uninitialized(x_TD.sizes(), at::kFloat);
  half.inverse_rms_T1 =
      RmsNormForward(x_TD, weights.attention_norm, input.config.norm_epsilon, half.normed_TD);
  half.attention = {
      .query_THC = ProjectToHeads(half.normed_TD, weights.query, weights.query_bias, head_dim),
      .key_TKC = ProjectToHeads(half.normed_TD, weights.key, weights.key_bias, head_dim),
      .value_TKC = ProjectToHeads(half.normed_TD, weights.value, weights.value_bias, head_dim),
      .document_offsets = input.document_offsets};
  RotateForward(input.rope, half.attention.query_THC);
  RotateForward(input.rope, half.attention.key_TKC);
  half.result = AttentionForward(half.attention);
  half.mixed_TE = half.result.out_THC.view({x_TD.size(0), -1});
  half.hidden_TD = Uninitialized(x_TD.sizes(), at::kFloat);
  LinearForward(half.mixed_TE, weights.output, x_TD, half.hidden_TD);
  return half;
}

MlpHalf ForwardMlp(const LayerInput& input, const LayerTensors& weights,
                   const at::Tensor& hidden_TD) {
  MlpHalf half;
  half.normed_TD = Uninitialized(hidden_TD.sizes(), at::kFloat);
  half.inverse_rms_T1 =
      RmsNormForward(hidden_TD, weights.mlp_norm, input.config.norm_epsilon, half.normed_TD);
  half.gate_TF = Project(half.normed_TD, weights.gate, {});
  half.up_TF = Project(half.normed_TD, weights.up, {});
  return half;
}

// Returns d loss / d the MLP's normed input.
at::Tensor BackwardMlp(const MlpHalf& half, const LayerTensors& weights,
                       const at::Tensor& hidden_gradient_TD, const LayerTensors& gradients) {
  const at::Tensor activated_TF = Uninitialized(half.gate_TF.sizes(), at::kFloat);
  SwigluForward(half.gate_TF, half.up_TF, activated_TF);
  LinearBackwardWeight(hidden_gradient_TD, activated_TF, gradients.down);
  const at::Tensor gate_gradient_TF = Uninitialized(half.gate_TF.sizes(), at::kFloat);
  LinearBackwardInput(hidden_gradient_TD, weights.down, gate_gradient_TF);
  const at::Tensor& up_gradient_TF = activated_TF;  // the activation has done its part
  SwigluBackward(half.gate_TF, half.up_TF, gate_gradient_TF, up_gradient_TF);
  LinearBackwardWeight(gate_gradient_TF, half.normed_TD, gradients.gate);
  LinearBackwardWeight(up_gradient_TF, half.normed_TD, gradients.up);
  at::Tensor normed_gradient_TD = Uninitialized(half.normed_TD.sizes(), at::kFloat);
  LinearBackwardInput(gate_gradient_TF, weights.gate, normed_gradient_TD);
  LinearBackwardInputAdd(up_gradient_TF, weights.up, normed_gradient_TD);
  return normed_gradient_TD;
}

// The gradients of queries, keys and values before rotation.
AttentionGradients BackwardHeads(const LayerInput& input, const AttentionHalf& half,
                                 const LayerTensors& weights,
                                 const at::Tensor& hidden_gradient_TD) {
  const at::Tensor mixed_gradient_TE = Uninitialized(half.mixed_TE.sizes(), at::kFloat);
  LinearBackwardInput(hidden_gradient_TD, weights.output, mixed_gradient_TE);
  AttentionGradients heads = {
      .query_THC = Uninitialized(half.attention.query_THC.sizes(), at::kFloat),
      .key_TKC = Uninitialized(half.attention.key_TKC.sizes(), at::kFloat),
      .value_TKC = Uninitialized(half.attention.value_TKC.sizes(), at::kFloat)};
  AttentionBackward(half.attention, half.result,
                    mixed_gradient_TE.view(half.result.out_THC.sizes()), heads);
  RotateBackward(input.rope, heads.query_THC);
  RotateBackward(input.rope, heads.key_TKC);
  return heads;
}

// One of the three projections: its weight's and bias's gradients. Returns the heads' side by side.
at::Tensor BackwardProjection(const at::Tensor& heads_gradient, const at::Tensor& normed_TD,
                              const at::Tensor& weight_gradient, const at::Tensor& bias_gradient) {
  const at::Tensor y_gradient = heads_gradient.view({normed_TD.size(0), -1});
  if (bias_gradient.defined()) {
    BiasBackward(y_gradient, bias_gradient);
  }
  LinearBackwardWeight(y_gradient, normed_TD, weight_gradient);
  return y_gradient;
}

// Returns d loss / d the attention's normed input.
at::Tensor BackwardAttention(const LayerInput& input, const AttentionHalf& half,
                             const LayerTensors& weights, const at::Tensor& hidden_gradient_TD,
                             const LayerTensors& gradients) {
  LinearBackwardWeight(hidden_gradient_TD, half.mixed_TE, gradients.output);
  const AttentionGradients heads = BackwardHeads(input, half, weights, hidden_gradient_TD);
  const at::Tensor& normed_TD = half.normed_TD;
  at::Tensor normed_gradient_TD = Uninitialized(normed_TD.sizes(), at::kFloat);
  LinearBackwardInput(
      BackwardProjection(heads.query_THC, normed_TD, gradients.query, gradients.query_bias),
      weights.query, normed_gradient_TD);
  LinearBackwardInputAdd(
      BackwardProjection(heads.key_TKC, normed_TD, gradients.key, gradients.key_bias), weights.key,
      normed_gradient_TD);
  LinearBackwardInputAdd(
      BackwardProjection(heads.value_TKC, normed_TD, gradients.value, gradients.value_bias),
      weights.value, normed_gradient_TD);
  return normed_gradient_TD;
}

}  // namespace

LayerTensors BindLayer(const UnitLayout& unit, const void* data, c10::ScalarType dtype) {
  const auto bind = [&](TensorRole role) {
    const TensorLayout* tensor = unit.Find(role);
    if (tensor == nullptr) {
      return at::Tensor();
    }
    const auto* base = static_cast<const char*>(data);
    return View(base + tensor->offset_elements * static_cast<int64_t>(c10::elementSize(dtype)),
                tensor->shape, dtype);
  };
  return {.attention_norm = bind(TensorRole::kAttentionNorm),
          .query = bind(TensorRole::kQuery),
          .query_bias = bind(TensorRole::kQueryBias),
          .key = bind(TensorRole::kKey),
          .key_bias = bind(TensorRole::kKeyBias),
          .value = bind(TensorRole::kValue),
          .value_bias = bind(TensorRole::kValueBias),
          .output = bind(TensorRole::kOutput),
          .mlp_norm = bind(TensorRole::kMlpNorm),
          .gate = bind(TensorRole::kGate),
          .up = bind(TensorRole::kUp),
          .down = bind(TensorRole::kDown)};
}

void DecoderLayerForward(const LayerInput& input, const LayerTensors& weights,
                         const at::Tensor& output_TD) {
  const at::Tensor hidden_TD = ForwardAttention(input, weights).hidden_TD;
  const MlpHalf half = ForwardMlp(input, weights, hidden_TD);
  const at::Tensor& activated_TF = half.gate_TF;
  SwigluForward(half.gate_TF, half.up_TF, activated_TF);
  LinearForward(activated_TF, weights.down, hidden_TD, output_TD);
}

void DecoderLayerBackward(const LayerInput& input, const LayerTensors& weights,
                          const at::Tensor& hidden_gradient_TD, const LayerTensors& gradients) {
  const AttentionHalf attention = ForwardAttention(input, weights);
  {
    at::Tensor normed_gradient_TD;
    at::Tensor inverse_rms_T1;
    {
      const MlpHalf mlp = ForwardMlp(input, weights, attention.hidden_TD);
      inverse_rms_T1 = mlp.inverse_rms_T1;
      normed_gradient_TD = BackwardMlp(mlp, weights, hidden_gradient_TD, gradients);
    }
    RmsNormBackward({.x_TD = attention.hidden_TD,
                     .weight_D = weights.mlp_norm,
                     .inverse_rms_T1 = inverse_rms_T1,
                     .normed_gradient_TD = normed_gradient_TD,
                     .weight_gradient_D = gradients.mlp_norm,
                     .x_gradient_TD = hidden_gradient_TD});
  }
  const at::Tensor normed_gradient_TD =
      BackwardAttention(input, attention, weights, hidden_gradient_TD, gradients);
  RmsNormBackward({.x_TD = input.hidden_TD,
                   .weight_D = weights.attention_norm,
                   .inverse_rms_T1 = attention.inverse_rms_T1,
                   .normed_gradient_TD = normed_gradient_TD,
                   .weight_gradient_D = gradients.attention_norm,
                   .x_gradient_TD = hidden_gradient_TD});
}

}  // namespace megatrain
