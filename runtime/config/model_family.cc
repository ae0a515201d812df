#include "runtime/config/model_family.h"

#include <vector>

namespace megatrain {
namespace {

// After transformers 5.24's configuration_*.py of each family.
const std::vector<ModelFamily>& Families() {
  static const auto& families = *new std::vector<ModelFamily>{
      {.architecture = "LlamaForCausalLM",
       .model_type = "llama",
       .trainable = true,
       .kv_heads_optional = true,
       .bias = BiasRule::kAttentionKey},
      {.architecture = "MistralForCausalLM",
       .model_type = "mistral",
       .window = WindowRule::kAlways},
      {.architecture = "Qwen2ForCausalLM",
       .model_type = "qwen2",
       .trainable = true,
       .bias = BiasRule::kQkv,
       .window = WindowRule::kOptIn},
      {.architecture = "Qwen3ForCausalLM",
       .model_type = "qwen3",
       .head_dim = 128,
       .bias = BiasRule::kAttentionKey,
       .window = WindowRule::kOptIn,
       .qk_norm = true},
      {.architecture = "Qwen3MoeForCausalLM",
       .model_type = "qwen3_moe",
       .bias = BiasRule::kAttentionKey,
       .window = WindowRule::kOptIn,
       .qk_norm = true,
       .expert_count_key = "num_experts",
       .expert_width_key = "moe_intermediate_size"},
      {.architecture = "GptOssForCausalLM",
       .model_type = "gpt_oss",
       .head_dim = 64,
       .rope_theta = 150000.0,
       .bias = BiasRule::kAttentionKey,
       .bias_by_default = true,
       .window = WindowRule::kEvenLayers,
       .attention_sinks = true,
       .expert_count_key = "num_local_experts",
       .expert_width_key = "intermediate_size",
       .expert_bias = true},
      {.architecture = "Gemma2ForCausalLM",
       .model_type = "gemma2",
       .head_dim = 256,
       .tied = true,
       .activation = "gelu_pytorch_tanh",
       .bias = BiasRule::kAttentionKey,
       .window = WindowRule::kEvenLayers,
       .norms_per_layer = 4},
      {.architecture = "Gemma3ForCausalLM",
       .model_type = "gemma3_text",
       .head_dim = 256,
       .rope_theta = 1000000.0,
       .tied = true,
       .activation = "gelu_pytorch_tanh",
       .bias = BiasRule::kAttentionKey,
       .window = WindowRule::kAllButEverySixth,
       .qk_norm = true,
       .norms_per_layer = 4},
      {.architecture = "Phi3ForCausalLM", .model_type = "phi3", .window = WindowRule::kAlways},
  };
  return families;
}

}  // namespace

const ModelFamily* FindModelFamily(std::string_view architecture) {
  for (const ModelFamily& family : Families()) {
    if (family.architecture == architecture) {
      return &family;
    }
  }
  return nullptr;
}

std::string KnownArchitectures() {
  std::string names;
  for (const ModelFamily& family : Families()) {
    names += (names.empty() ? "" : ", ") + family.architecture;
  }
  return names;
}

}  // namespace megatrain
