#include "runtime/model/cuda_model.h"

#include <cstdint>

namespace megatrain {
namespace {

template <typename Element, typename Find>
LayerTensors<Element> Bind(Find find) {
  return {.attention_norm = find(TensorRole::kAttentionNorm),
          .qkv = find(TensorRole::kQuery),
          .qkv_bias = find(TensorRole::kQueryBias),
          .output = find(TensorRole::kOutput),
          .mlp_norm = find(TensorRole::kMlpNorm),
          .gate_up = find(TensorRole::kGate),
          .down = find(TensorRole::kDown)};
}

// Also where the unit has neither.
bool Adjoin(const UnitLayout& unit, TensorRole first, TensorRole second) {
  const TensorLayout* a = unit.Find(first);
  const TensorLayout* b = unit.Find(second);
  if (a == nullptr || b == nullptr) {
    return a == b;
  }
  return a->offset_elements + a->element_count == b->offset_elements;
}

}  // namespace

MatrixView DenseMatrix(const void* data, int64_t rows, int64_t cols) {
  return {.data = const_cast<void*>(data), .rows = rows, .cols = cols, .stride = cols};
}

const void* FindWeight(const UnitLayout& unit, TensorRole role, const void* weights,
                       ComputeDtype dtype) {
  const TensorLayout* tensor = unit.Find(role);
  return tensor == nullptr
             ? nullptr
             : static_cast<const char*>(weights) + tensor->offset_elements * SizeBytes(dtype);
}

float* FindGradient(const UnitLayout& unit, TensorRole role, float* gradients) {
  const TensorLayout* tensor = unit.Find(role);
  return tensor == nullptr ? nullptr : gradients + tensor->offset_elements;
}

LayerWeights BindWeights(const UnitLayout& layer, const void* weights, ComputeDtype dtype) {
  return Bind<const void>([&](TensorRole role) { return FindWeight(layer, role, weights, dtype); });
}

LayerGradients BindGradients(const UnitLayout& layer, float* gradients) {
  return Bind<float>([&](TensorRole role) { return FindGradient(layer, role, gradients); });
}

bool LiesFused(const UnitLayout& layer) {
  return Adjoin(layer, TensorRole::kQuery, TensorRole::kKey) &&
         Adjoin(layer, TensorRole::kKey, TensorRole::kValue) &&
         Adjoin(layer, TensorRole::kQueryBias, TensorRole::kKeyBias) &&
         Adjoin(layer, TensorRole::kKeyBias, TensorRole::kValueBias) &&
         Adjoin(layer, TensorRole::kGate, TensorRole::kUp);
}

}  // namespace megatrain
