// A model's shape, read from its config.json. No LibTorch, no files: the daemon plans with it.

#ifndef RUNTIME_CONFIG_MODEL_CONFIG_H_
#define RUNTIME_CONFIG_MODEL_CONFIG_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace megatrain {

enum class RopeKind { kDefault, kLinear, kLlama3, kOther };

// Rotary position embedding, from `rope_theta` + `rope_scaling` or from `rope_parameters`.
struct RopeConfig {
  RopeKind kind = RopeKind::kDefault;
  std::string name = "default";  // as the file spells it
  double theta = 10000.0;
  double factor = 1.0;                 // linear, llama3
  double low_frequency_factor = 1.0;   // llama3
  double high_frequency_factor = 4.0;  // llama3
  int64_t original_max_positions = 0;  // llama3
};

// Experts of a mixture; expert_count 0 is a dense model.
struct MoeConfig {
  int64_t expert_count = 0;
  int64_t experts_per_token = 0;
  int64_t expert_width = 0;
  bool bias = false;  // on the router and on the experts' matrices
};

// The shape of a decoder-only model. Counts are positive.
struct ModelConfig {
  std::string architecture;  // architectures[0], such as "LlamaForCausalLM"
  std::string model_type;    // such as "llama"
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t mlp_width = 0;
  int64_t layer_count = 0;
  int64_t head_count = 0;
  int64_t kv_head_count = 0;
  int64_t head_dim = 0;  // from the file, else hidden_size / head_count
  int64_t max_positions = 0;
  double norm_epsilon = 1e-5;
  bool qkv_bias = false;     // on q, k and v
  bool output_bias = false;  // on the attention's output
  bool mlp_bias = false;
  bool qk_norm = false;          // a norm per head on q and k
  bool attention_sinks = false;  // one logit per head in the softmax' denominator
  int64_t norms_per_layer = 2;   // over the hidden size
  bool tied = false;             // tie_word_embeddings
  std::string activation = "silu";
  RopeConfig rope;
  MoeConfig moe;
  std::vector<bool> layer_uses_window;  // per layer; all false when no window is in use
  int64_t window = 0;
  std::string dtype;  // of the weights, from `dtype` or `torch_dtype`; empty when not said

  // Settings in the file that change results and that no template follows, such as
  // "attention_dropout = 0.1". For planning they do not matter.
  std::vector<std::string> unsupported;

  // Also for shapes that cannot be trained yet. Every parameter, a tied tensor once.
  int64_t ParameterCount() const;
  // Parameters that one token meets: all but the experts it is not sent to.
  int64_t ActiveParameterCount() const;
  // The largest of embedding, one layer, head; an MoE layer counts whole.
  int64_t LargestUnitParameterCount() const;
};

// Reads a config.json of any family that docs/MODELS.md lists. INVALID_ARGUMENT names the key that
// is absent, of a wrong type or out of range; UNIMPLEMENTED names an unknown architecture or RoPE
// type. Bounded: refuses text over 1 MiB and nesting deeper than 64.
absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view json);

// OK when the engine can train this shape; else UNIMPLEMENTED that names what it lacks.
absl::Status CheckTrainable(const ModelConfig& config);

}  // namespace megatrain

#endif  // RUNTIME_CONFIG_MODEL_CONFIG_H_
