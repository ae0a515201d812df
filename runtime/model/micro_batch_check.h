#ifndef RUNTIME_MODEL_MICRO_BATCH_CHECK_H_
#define RUNTIME_MODEL_MICRO_BATCH_CHECK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "runtime/model/layer_template.h"

namespace megatrain {

// INVALID_ARGUMENT where positions or documents do not fit the tokens.
absl::Status CheckDocuments(const MicroBatch& batch);

// INVALID_ARGUMENT where a token is no row of the table.
absl::Status CheckTokens(const MicroBatch& batch, int64_t vocab_size);

// INVALID_ARGUMENT where a loss position is out of order or range, or a target is no row.
absl::Status CheckTargets(const MicroBatch& batch, int64_t vocab_size);

}  // namespace megatrain

#endif  // RUNTIME_MODEL_MICRO_BATCH_CHECK_H_
