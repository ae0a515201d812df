#ifndef RUNTIME_CONFIG_MODEL_FAMILY_H_
#define RUNTIME_CONFIG_MODEL_FAMILY_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace megatrain {

// Which layers attend to a window when the file has no `layer_types`.
enum class WindowRule {
  kNever,
  kAlways,            // when sliding_window is set
  kOptIn,             // when use_sliding_window, from layer max_window_layers on
  kEvenLayers,        // 0, 2, 4, ...
  kAllButEverySixth,  // five with a window, then one without
};

// Which matrices `attention_bias` (or the architecture itself) gives a bias.
enum class BiasRule {
  kNone,
  kQkv,           // always on q, k and v, as no key says
  kAttentionKey,  // attention_bias: on q, k, v and the output
};

// What an architecture's code fixes and its config.json does not say, with transformers'
// defaults for keys that files of that family leave out.
struct ModelFamily {
  std::string architecture;
  std::string model_type;
  bool trainable = false;
  bool kv_heads_optional = false;  // absent: as many as heads
  int64_t head_dim = 0;            // when the file has none; 0: hidden_size / heads
  double rope_theta = 10000.0;
  bool tied = false;
  std::string activation = "silu";
  BiasRule bias = BiasRule::kNone;
  bool bias_by_default = false;
  WindowRule window = WindowRule::kNever;
  bool qk_norm = false;
  int64_t norms_per_layer = 2;
  bool attention_sinks = false;
  const char* expert_count_key = nullptr;  // a mixture of experts
  const char* expert_width_key = nullptr;
  bool expert_bias = false;
};

// nullptr for an unknown architecture.
const ModelFamily* FindModelFamily(std::string_view architecture);

// For messages: every architecture, comma-separated.
std::string KnownArchitectures();

}  // namespace megatrain

#endif  // RUNTIME_CONFIG_MODEL_FAMILY_H_
