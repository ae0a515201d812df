// What the CUDA templates of all units share, and where the tensors of a unit lie.

#ifndef RUNTIME_MODEL_CUDA_MODEL_H_
#define RUNTIME_MODEL_CUDA_MODEL_H_

#include <vector_types.h>

#include <cstdint>

#include "runtime/config/model_layout.h"
#include "runtime/kernels/matmul.h"
#include "runtime/kernels/packed_attention_interface.h"
#include "runtime/model/cuda_buffers.h"
#include "runtime/model/layer_template.h"

namespace megatrain {

// Owns nothing.
struct CudaModel {
  CudaShape shape;
  float norm_epsilon;
  MatrixMultiplier* matmul;
  PackedAttention* attention;
  const float2* rope_table;  // device, [positions, C / 2]
};

// A decoder layer's tensors in its unit. Query, key and value are one matrix and one bias, gate and
// up are one matrix.
template <typename Element>
struct LayerTensors {
  Element* attention_norm;  // [d]
  Element* qkv;             // [(H + 2 K) C, d]
  Element* qkv_bias;        // [(H + 2 K) C]; null where the model has none
  Element* output;          // [d, H C]
  Element* mlp_norm;        // [d]
  Element* gate_up;         // [2 f, d]
  Element* down;            // [d, f]
};
using LayerWeights = LayerTensors<const void>;
using LayerGradients = LayerTensors<float>;

// A matrix without gaps between its rows.
MatrixView DenseMatrix(const void* data, int64_t rows, int64_t cols);

// Null where the unit has no such tensor.
const void* FindWeight(const UnitLayout& unit, TensorRole role, const void* weights,
                       ComputeDtype dtype);
float* FindGradient(const UnitLayout& unit, TensorRole role, float* gradients);

LayerWeights BindWeights(const UnitLayout& layer, const void* weights, ComputeDtype dtype);
LayerGradients BindGradients(const UnitLayout& layer, float* gradients);

// True where a layer's query, key and value lie without gaps, their biases too, and gate and up.
bool LiesFused(const UnitLayout& layer);

}  // namespace megatrain

#endif  // RUNTIME_MODEL_CUDA_MODEL_H_
