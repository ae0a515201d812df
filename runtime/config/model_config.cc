#include "runtime/config/model_config.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"
#include "runtime/base/bounded_json.h"
#include "runtime/base/json_fields.h"
#include "runtime/base/status_macros.h"
#include "runtime/config/model_family.h"
#include "runtime/config/rope_config.h"

namespace megatrain {
namespace {

using nlohmann::json;

constexpr char kFile[] = "config.json: ";

// Far above every published model, and low enough that no count of parameters or bytes overflows.
constexpr int64_t kMaxVocab = int64_t{1} << 24;
constexpr int64_t kMaxHidden = int64_t{1} << 17;
constexpr int64_t kMaxWidth = int64_t{1} << 20;
constexpr int64_t kMaxLayers = int64_t{1} << 12;
constexpr int64_t kMaxHeads = int64_t{1} << 10;
constexpr int64_t kMaxHeadDim = int64_t{1} << 12;
constexpr int64_t kMaxExperts = int64_t{1} << 11;
constexpr int64_t kMaxPositions = int64_t{1} << 31;
constexpr int64_t kMaxParameters = int64_t{1} << 46;

// Keys that change results when they are not at the value at which they do nothing.
struct NeutralSetting {
  const char* key;
  json neutral;
};
const std::vector<NeutralSetting>& NeutralSettings() {
  static const auto& settings =
      *new std::vector<NeutralSetting>{{"attention_dropout", 0.0},
                                       {"resid_pdrop", 0.0},
                                       {"embd_pdrop", 0.0},
                                       {"hidden_dropout", 0.0},
                                       {"pretraining_tp", 1},
                                       {"partial_rotary_factor", 1.0},
                                       {"rope_interleaved", false},
                                       {"attn_logit_softcapping", nullptr},
                                       {"clip_qkv", nullptr},
                                       {"final_logit_softcapping", nullptr},
                                       {"quantization_config", nullptr}};
  return settings;
}

absl::StatusOr<const ModelFamily*> ReadFamily(const json& root) {
  auto found = root.find("architectures");
  if (found == root.end() || !found->is_array() || found->empty() || !(*found)[0].is_string()) {
    return absl::InvalidArgumentError(
        "config.json: architectures is not a list that starts with a name");
  }
  const std::string architecture = (*found)[0].get<std::string>();
  const ModelFamily* family = FindModelFamily(architecture);
  if (family == nullptr) {
    return absl::UnimplementedError(absl::StrCat("config.json: unknown architecture \"",
                                                 architecture,
                                                 "\"; known are: ", KnownArchitectures()));
  }
  JsonFields fields(root, kFile);
  // transformers chooses the code by model_type, so the two must agree.
  std::string model_type = fields.TextOr("model_type", family->model_type);
  if (model_type != family->model_type) {
    fields.Refuse("model_type",
                  absl::StrCat("is \"", model_type, "\", which is not what ", architecture, " is"));
  }
  MT_RETURN_IF_ERROR(fields.status());
  return family;
}

void ReadShape(const ModelFamily& family, JsonFields& fields, ModelConfig* config) {
  config->vocab_size = fields.Number("vocab_size", 1, kMaxVocab);
  config->hidden_size = fields.Number("hidden_size", 1, kMaxHidden);
  config->mlp_width = fields.Number("intermediate_size", 1, kMaxWidth);
  config->layer_count = fields.Number("num_hidden_layers", 1, kMaxLayers);
  config->head_count = fields.Number("num_attention_heads", 1, kMaxHeads);
  config->kv_head_count =
      family.kv_heads_optional
          ? fields.NumberOr("num_key_value_heads", config->head_count, 1, kMaxHeads)
          : fields.Number("num_key_value_heads", 1, kMaxHeads);
  config->max_positions = fields.Number("max_position_embeddings", 1, kMaxPositions);
  config->head_dim = fields.NumberOr("head_dim", family.head_dim, 1, kMaxHeadDim);
  if (!fields.status().ok()) {
    return;
  }
  if (config->head_dim == 0) {
    if (config->hidden_size % config->head_count != 0) {
      fields.Refuse("hidden_size", "is no multiple of num_attention_heads, and head_dim is absent");
    }
    config->head_dim = config->hidden_size / config->head_count;
  }
  if (config->head_count % config->kv_head_count != 0) {
    fields.Refuse("num_attention_heads", "is no multiple of num_key_value_heads");
  }
}

void ReadBlocks(const ModelFamily& family, JsonFields& fields, ModelConfig* config) {
  config->norm_epsilon = fields.Positive("rms_norm_eps");
  config->tied = fields.FlagOr("tie_word_embeddings", family.tied);
  const bool bias_key = fields.FlagOr("attention_bias", family.bias_by_default);
  config->output_bias = family.bias == BiasRule::kAttentionKey && bias_key;
  config->qkv_bias = family.bias == BiasRule::kQkv || config->output_bias;
  config->mlp_bias = fields.FlagOr("mlp_bias", false);
  config->qk_norm = family.qk_norm;
  config->norms_per_layer = family.norms_per_layer;
  config->attention_sinks = family.attention_sinks;
  config->activation = fields.TextOr("hidden_act", family.activation);
  config->activation = fields.TextOr("hidden_activation", config->activation);
  config->dtype = fields.TextOr("dtype", fields.TextOr("torch_dtype", ""));
}

// All layers must be mixtures: none of the published models of these families mixes kinds.
absl::Status ReadExperts(const ModelFamily& family, const json& root, JsonFields& fields,
                         ModelConfig* config) {
  if (family.expert_count_key == nullptr) {
    return absl::OkStatus();
  }
  config->moe.expert_count = fields.Number(family.expert_count_key, 1, kMaxExperts);
  config->moe.experts_per_token = fields.Number("num_experts_per_tok", 1, kMaxExperts);
  config->moe.expert_width = fields.Number(family.expert_width_key, 1, kMaxWidth);
  config->moe.bias = family.expert_bias;
  if (fields.status().ok() && config->moe.experts_per_token > config->moe.expert_count) {
    fields.Refuse("num_experts_per_tok", "is greater than the number of experts");
  }
  const json dense_layers = root.value("mlp_only_layers", json());
  if ((!dense_layers.is_null() && dense_layers != json::array()) ||
      fields.NumberOr("decoder_sparse_step", 1, 1, kMaxLayers) != 1) {
    return absl::UnimplementedError(
        "config.json: mlp_only_layers or decoder_sparse_step: dense layers in a mixture of experts "
        "are not supported");
  }
  return absl::OkStatus();
}

bool LayerHasWindow(WindowRule rule, int64_t layer, int64_t first_layer) {
  switch (rule) {
    case WindowRule::kNever:
      return false;
    case WindowRule::kAlways:
      return true;
    case WindowRule::kOptIn:
      return layer >= first_layer;
    case WindowRule::kEvenLayers:
      return layer % 2 == 0;
    case WindowRule::kAllButEverySixth:
      return (layer + 1) % 6 != 0;
  }
  return false;
}

// `layer_types`, when present, is the last word.
absl::Status ReadLayerTypes(const json& types, JsonFields& fields, ModelConfig* config) {
  if (!types.is_array() || static_cast<int64_t>(types.size()) != config->layer_count) {
    fields.Refuse("layer_types", "is not a list with one entry a layer");
    return absl::OkStatus();
  }
  for (size_t layer = 0; layer < types.size(); ++layer) {
    if (types[layer] != "full_attention" && types[layer] != "sliding_attention") {
      return absl::UnimplementedError(absl::StrCat("config.json: layer_types[", layer, "] is ",
                                                   types[layer].dump(),
                                                   ", a kind of layer that is not supported"));
    }
    config->layer_uses_window[layer] = types[layer] == "sliding_attention";
  }
  return absl::OkStatus();
}

absl::Status ReadWindows(const ModelFamily& family, JsonFields& fields, ModelConfig* config) {
  config->layer_uses_window.assign(config->layer_count, false);
  int64_t window = fields.NumberOr("sliding_window", 0, 1, kMaxPositions);
  int64_t first_layer = 0;
  if (family.window == WindowRule::kOptIn) {
    // The family's default for max_window_layers is 28; a file that opts in says where.
    window = fields.FlagOr("use_sliding_window", false) ? window : 0;
    if (window > 0 && fields.Has("max_window_layers") &&
        fields.Any("max_window_layers") != json(0)) {
      first_layer = fields.Number("max_window_layers", 1, kMaxLayers);
    }
  }
  if (family.window == WindowRule::kNever) {
    window = 0;
  }
  for (int64_t layer = 0; window > 0 && layer < config->layer_count; ++layer) {
    config->layer_uses_window[layer] = LayerHasWindow(family.window, layer, first_layer);
  }
  if (const json& types = fields.Any("layer_types"); !types.is_null()) {
    MT_RETURN_IF_ERROR(ReadLayerTypes(types, fields, config));
  }
  const auto& uses = config->layer_uses_window;
  const bool in_use = std::find(uses.begin(), uses.end(), true) != uses.end();
  if (in_use && window == 0) {
    fields.Refuse("sliding_window", "is absent or off, but layer_types has layers with a window");
  }
  config->window = in_use ? window : 0;
  return absl::OkStatus();
}

void NoteUnsupportedSettings(const json& root, ModelConfig* config) {
  for (const NeutralSetting& setting : NeutralSettings()) {
    auto found = root.find(setting.key);
    if (found != root.end() && !found->is_null() && *found != setting.neutral) {
      std::string value = found->is_structured() ? "..." : found->dump();
      config->unsupported.push_back(absl::StrCat(setting.key, " = ", value));
    }
  }
}

int64_t MlpMatrixParameters(const ModelConfig& c, int64_t width, bool bias) {
  return 3 * c.hidden_size * width + (bias ? 2 * width + c.hidden_size : 0);
}

int64_t LayerParameterCount(const ModelConfig& c, int64_t experts) {
  const int64_t query_rows = c.head_count * c.head_dim;
  const int64_t kv_rows = c.kv_head_count * c.head_dim;
  int64_t count = 2 * query_rows * c.hidden_size + 2 * kv_rows * c.hidden_size;
  count += c.qkv_bias ? query_rows + 2 * kv_rows : 0;
  count += c.output_bias ? c.hidden_size : 0;
  count += c.norms_per_layer * c.hidden_size;
  count += c.qk_norm ? 2 * c.head_dim : 0;
  count += c.attention_sinks ? c.head_count : 0;
  if (c.moe.expert_count == 0) {
    return count + MlpMatrixParameters(c, c.mlp_width, c.mlp_bias);
  }
  const int64_t router = c.hidden_size * c.moe.expert_count + (c.moe.bias ? c.moe.expert_count : 0);
  return count + router + experts * MlpMatrixParameters(c, c.moe.expert_width, c.moe.bias);
}

int64_t CountParameters(const ModelConfig& c, int64_t experts) {
  const int64_t table = c.vocab_size * c.hidden_size;
  return (c.tied ? 1 : 2) * table + c.hidden_size + c.layer_count * LayerParameterCount(c, experts);
}

}  // namespace

int64_t ModelConfig::ParameterCount() const { return CountParameters(*this, moe.expert_count); }

int64_t ModelConfig::ActiveParameterCount() const {
  return CountParameters(*this, moe.experts_per_token);
}

int64_t ModelConfig::LargestUnitParameterCount() const {
  const int64_t table = vocab_size * hidden_size;
  return std::max(tied ? table : table + hidden_size, LayerParameterCount(*this, moe.expert_count));
}

absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view text) {
  auto root = ParseBoundedJson(text, JsonLimits{});
  if (!root.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("config.json: ", root.status().message()));
  }
  if (!root->is_object()) {
    return absl::InvalidArgumentError("config.json: is not an object");
  }
  MT_ASSIGN_OR_RETURN(const ModelFamily* family, ReadFamily(*root));
  ModelConfig config;
  config.architecture = family->architecture;
  config.model_type = family->model_type;
  JsonFields fields(*root, kFile);
  ReadShape(*family, fields, &config);
  ReadBlocks(*family, fields, &config);
  MT_RETURN_IF_ERROR(ReadExperts(*family, *root, fields, &config));
  MT_RETURN_IF_ERROR(fields.status());
  MT_RETURN_IF_ERROR(ReadWindows(*family, fields, &config));
  MT_RETURN_IF_ERROR(fields.status());
  NoteUnsupportedSettings(*root, &config);
  MT_ASSIGN_OR_RETURN(config.rope, ParseRope(*root, family->rope_theta, &config.unsupported));
  if (config.ParameterCount() > kMaxParameters) {
    return absl::InvalidArgumentError(
        absl::StrCat("config.json: ", config.ParameterCount(), " parameters are too many"));
  }
  return config;
}

absl::Status CheckTrainable(const ModelConfig& config) {
  std::vector<std::string> lacks = config.unsupported;
  const ModelFamily* family = FindModelFamily(config.architecture);
  if (family == nullptr || !family->trainable) {
    lacks.push_back(config.architecture);
  }
  const auto& uses = config.layer_uses_window;
  if (std::find(uses.begin(), uses.end(), true) != uses.end()) {
    lacks.push_back(absl::StrCat("sliding_window = ", config.window));
  }
  if (config.output_bias) {
    lacks.push_back("attention_bias = true");
  }
  if (config.mlp_bias) {
    lacks.push_back("mlp_bias = true");
  }
  if (config.activation != "silu") {
    lacks.push_back(absl::StrCat("hidden_act = ", config.activation));
  }
  if (config.rope.kind == RopeKind::kOther) {
    lacks.push_back(absl::StrCat("RoPE of type ", config.rope.name));
  }
  if (config.head_dim % 2 != 0) {
    lacks.push_back(absl::StrCat("head_dim = ", config.head_dim, " (odd)"));
  }
  if (lacks.empty()) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(absl::StrCat(
      "this model cannot be trained yet; the engine lacks: ", absl::StrJoin(lacks, ", ")));
}

}  // namespace megatrain
