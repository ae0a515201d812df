#include "runtime/planner/model_flops.h"

#include <numeric>

namespace megatrain {
namespace {

// Of one layer, by part.
int64_t ProjectionParameters(const ModelConfig& config) {
  return (config.head_count + 2 * config.kv_head_count) * config.head_dim * config.hidden_size;
}

int64_t OutputParameters(const ModelConfig& config) {
  return config.head_count * config.head_dim * config.hidden_size;
}

// One of the MLP's three matrices.
int64_t MlpMatrixParameters(const ModelConfig& config) {
  return ActiveMlpWidth(config) * config.hidden_size;
}

int64_t RouterParameters(const ModelConfig& config) {
  return config.moe.expert_count * config.hidden_size;
}

double TokenCount(std::span<const int64_t> document_tokens) {
  return static_cast<double>(
      std::accumulate(document_tokens.begin(), document_tokens.end(), int64_t{0}));
}

// Forward and backward of all layers: a third of it is forward.
double AttentionFlops(const ModelConfig& config, std::span<const int64_t> document_tokens) {
  double scores = 0;  // 6 s^2 or what a window leaves of it, summed
  for (int64_t layer = 0; layer < config.layer_count; ++layer) {
    const bool windowed = layer < static_cast<int64_t>(config.layer_uses_window.size()) &&
                          config.layer_uses_window[layer];
    for (const int64_t tokens : document_tokens) {
      const double s = static_cast<double>(tokens);
      const double w = static_cast<double>(config.window);
      scores += windowed && w < s ? 12 * (s * w - w * w / 2) : 6 * s * s;
    }
  }
  return scores * static_cast<double>(config.head_count * config.head_dim);
}

}  // namespace

int64_t ActiveMlpWidth(const ModelConfig& config) {
  const MoeConfig& moe = config.moe;
  return moe.expert_count > 0 ? moe.experts_per_token * moe.expert_width : config.mlp_width;
}

int64_t MatmulParameterCount(const ModelConfig& config) {
  const int64_t layer = ProjectionParameters(config) + OutputParameters(config) +
                        3 * MlpMatrixParameters(config) + RouterParameters(config);
  return config.layer_count * layer + config.vocab_size * config.hidden_size;
}

double ModelFlops(const ModelConfig& config, std::span<const int64_t> document_tokens) {
  return 6 * static_cast<double>(MatmulParameterCount(config)) * TokenCount(document_tokens) +
         AttentionFlops(config, document_tokens);
}

double RecomputeFlops(const ModelConfig& config, KeepLevel keep,
                      std::span<const int64_t> document_tokens) {
  if (keep >= KeepLevel::kProducts) {
    return 0;
  }
  // The output of the MLP's last matrix is not an input of backward.
  int64_t parameters =
      OutputParameters(config) + 2 * MlpMatrixParameters(config) + RouterParameters(config);
  if (keep != KeepLevel::kProjections) {
    parameters += ProjectionParameters(config);
  }
  const double products =
      2 * static_cast<double>(config.layer_count * parameters) * TokenCount(document_tokens);
  return keep == KeepLevel::kNothing ? products + AttentionFlops(config, document_tokens) / 3
                                     : products;
}

}  // namespace megatrain
