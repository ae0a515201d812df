// How much workspace the layer templates take: pure arithmetic without LibTorch, for the planner.

#ifndef RUNTIME_MODEL_WORKSPACE_SIZE_H_
#define RUNTIME_MODEL_WORKSPACE_SIZE_H_

#include <cstdint>

#include "runtime/config/model_config.h"
#include "runtime/model/layer_template.h"

namespace megatrain {

// The most compute threads that the bound below allows for: attention takes a buffer for each.
inline constexpr int64_t kMaxComputeThreads = 32;

// Rows of logits that the head holds at once, for `loss_tokens` loss positions: at most 64 MiB of
// fp32, but at least 32 rows, so that its matrix products stay efficient for a large vocabulary.
int64_t HeadChunkRows(int64_t vocab_size, int64_t loss_tokens);

// An upper bound of the bytes of Workspace that any call of ModelTemplates takes for micro-batches
// of at most `max_micro_batch_tokens` tokens, `max_loss_tokens` of them with a loss, in documents
// of at most `max_document_tokens` tokens. A multiple of 64.
int64_t WorkspaceBytes(const ModelConfig& config, ComputeDtype dtype,
                       int64_t max_micro_batch_tokens, int64_t max_document_tokens,
                       int64_t max_loss_tokens);

}  // namespace megatrain

#endif  // RUNTIME_MODEL_WORKSPACE_SIZE_H_
