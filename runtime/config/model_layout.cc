#include "runtime/config/model_layout.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"

namespace megatrain {
namespace {

int64_t RoundUp(int64_t elements) {
  return (elements + kTensorAlignmentElements - 1) / kTensorAlignmentElements *
         kTensorAlignmentElements;
}

void Add(TensorRole role, std::string name, std::vector<int64_t> shape, UnitLayout* unit) {
  int64_t count = 1;
  for (int64_t size : shape) {
    count *= size;
  }
  const bool decays = shape.size() >= 2;
  unit->tensors.push_back({.role = role,
                           .name = std::move(name),
                           .shape = std::move(shape),
                           .offset_elements = unit->element_count,
                           .element_count = count,
                           .decays = decays});
  unit->element_count = RoundUp(unit->element_count + count);
}

UnitLayout Embedding(const ModelConfig& config) {
  UnitLayout unit = {
      .kind = UnitKind::kEmbedding, .layer_index = -1, .tensors = {}, .element_count = 0};
  Add(TensorRole::kTokenTable, "model.embed_tokens.weight", {config.vocab_size, config.hidden_size},
      &unit);
  return unit;
}

UnitLayout DecoderLayer(const ModelConfig& config, int layer) {
  UnitLayout unit = {
      .kind = UnitKind::kDecoderLayer, .layer_index = layer, .tensors = {}, .element_count = 0};
  const std::string prefix = absl::StrCat("model.layers.", layer, ".");
  const int64_t d = config.hidden_size;
  const int64_t query_rows = config.head_count * config.head_dim;
  const int64_t kv_rows = config.kv_head_count * config.head_dim;
  const auto add = [&](TensorRole role, const char* name, std::vector<int64_t> shape) {
    Add(role, absl::StrCat(prefix, name), std::move(shape), &unit);
  };
  add(TensorRole::kAttentionNorm, "input_layernorm.weight", {d});
  add(TensorRole::kQuery, "self_attn.q_proj.weight", {query_rows, d});
  add(TensorRole::kKey, "self_attn.k_proj.weight", {kv_rows, d});
  add(TensorRole::kValue, "self_attn.v_proj.weight", {kv_rows, d});
  if (config.qkv_bias) {
    add(TensorRole::kQueryBias, "self_attn.q_proj.bias", {query_rows});
    add(TensorRole::kKeyBias, "self_attn.k_proj.bias", {kv_rows});
    add(TensorRole::kValueBias, "self_attn.v_proj.bias", {kv_rows});
  }
  add(TensorRole::kOutput, "self_attn.o_proj.weight", {d, query_rows});
  add(TensorRole::kMlpNorm, "post_attention_layernorm.weight", {d});
  add(TensorRole::kGate, "mlp.gate_proj.weight", {config.mlp_width, d});
  add(TensorRole::kUp, "mlp.up_proj.weight", {config.mlp_width, d});
  add(TensorRole::kDown, "mlp.down_proj.weight", {d, config.mlp_width});
  return unit;
}

UnitLayout Head(const ModelConfig& config) {
  UnitLayout unit = {.kind = UnitKind::kHead, .layer_index = -1, .tensors = {}, .element_count = 0};
  Add(TensorRole::kFinalNorm, "model.norm.weight", {config.hidden_size}, &unit);
  if (!config.tied) {
    Add(TensorRole::kHead, "lm_head.weight", {config.vocab_size, config.hidden_size}, &unit);
  }
  return unit;
}

}  // namespace

const TensorLayout* UnitLayout::Find(TensorRole role) const {
  for (const TensorLayout& tensor : tensors) {
    if (tensor.role == role) {
      return &tensor;
    }
  }
  return nullptr;
}

int64_t ModelLayout::LargestUnitElements() const {
  int64_t largest = 0;
  for (const UnitLayout& unit : units) {
    largest = std::max(largest, unit.element_count);
  }
  return largest;
}

int64_t ModelLayout::TotalElements() const {
  int64_t total = 0;
  for (const UnitLayout& unit : units) {
    total += unit.element_count;
  }
  return total;
}

ModelLayout MakeModelLayout(const ModelConfig& config) {
  MT_CHECK(CheckTrainable(config).ok());
  ModelLayout layout = {.units = {}, .tied = config.tied};
  layout.units.push_back(Embedding(config));
  for (int layer = 0; layer < config.layer_count; ++layer) {
    layout.units.push_back(DecoderLayer(config, layer));
  }
  layout.units.push_back(Head(config));
  return layout;
}

}  // namespace megatrain
