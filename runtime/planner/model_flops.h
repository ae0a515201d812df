// How much arithmetic a training step is: what speed is divided by. Pure functions.

#ifndef RUNTIME_PLANNER_MODEL_FLOPS_H_
#define RUNTIME_PLANNER_MODEL_FLOPS_H_

#include <cstdint>
#include <span>

#include "runtime/config/model_config.h"
#include "runtime/model/layer_template.h"

namespace megatrain {

// Of all experts together that a token is sent to, where there are experts.
int64_t ActiveMlpWidth(const ModelConfig& config);

// Parameters that one token meets in matrix products: projections, MLP or the experts it is sent
// to with their router, and the head's matrix, also when it is tied. No embedding, norm or bias.
int64_t MatmulParameterCount(const ModelConfig& config);

// Floating-point operations that training on documents of these lengths takes, forward and
// backward, whatever is computed twice: 6 a matmul parameter and token, and for attention, of which
// a causal one needs half, 6 s^2 heads head_dim a layer and document of length s; with a window w <
// s, 12 (s w - w^2 / 2) in place of 6 s^2.
double ModelFlops(const ModelConfig& config, std::span<const int64_t> document_tokens);

// What backward computes a second time when forward kept that much; norms and activation functions
// are not counted.
double RecomputeFlops(const ModelConfig& config, KeepLevel keep,
                      std::span<const int64_t> document_tokens);

}  // namespace megatrain

#endif  // RUNTIME_PLANNER_MODEL_FLOPS_H_
