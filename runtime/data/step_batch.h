#ifndef RUNTIME_DATA_STEP_BATCH_H_
#define RUNTIME_DATA_STEP_BATCH_H_

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/model/layer_template.h"

namespace megatrain {

// A micro-batch that owns its arrays (their meaning: MicroBatch).
struct OwnedMicroBatch {
  std::vector<int32_t> tokens;
  std::vector<int32_t> positions;
  std::vector<int32_t> document_offsets = {0};
  std::vector<int32_t> loss_positions;
  std::vector<int32_t> loss_targets;
  std::vector<int64_t> rows;  // of the prepared data, one a document

  // Adds a document at the end. `trained`, one a token: 1 puts a loss at the position before; the
  // first is 0.
  void Append(int64_t row, std::span<const int32_t> document_tokens,
              std::span<const uint8_t> trained);

  // Valid while this lives and does not change.
  MicroBatch View() const;

  // The row that the loss of that index (into loss_positions) belongs to.
  int64_t RowOfLoss(int64_t loss_index) const;
};

// What one optimizer step trains on.
struct StepBatch {
  std::vector<OwnedMicroBatch> micro_batches;
  int64_t token_count = 0;       // real tokens: there is no padding
  int64_t loss_token_count = 0;  // the step's loss and gradient are divided by it
};

}  // namespace megatrain

#endif  // RUNTIME_DATA_STEP_BATCH_H_
