#include "runtime/data/step_batch.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace megatrain {

void OwnedMicroBatch::Append(int64_t row, std::span<const int32_t> document_tokens,
                             std::span<const uint8_t> trained) {
  MT_CHECK(document_tokens.size() == trained.size());
  MT_CHECK(!trained.empty() && trained[0] == 0);
  const int32_t start = document_offsets.back();
  for (size_t i = 0; i < document_tokens.size(); ++i) {
    tokens.push_back(document_tokens[i]);
    positions.push_back(static_cast<int32_t>(i));
    if (trained[i] != 0) {
      loss_positions.push_back(start + static_cast<int32_t>(i) - 1);
      loss_targets.push_back(document_tokens[i]);
    }
  }
  document_offsets.push_back(static_cast<int32_t>(tokens.size()));
  rows.push_back(row);
}

MicroBatch OwnedMicroBatch::View() const {
  return MicroBatch{.tokens = tokens,
                    .positions = positions,
                    .document_offsets = document_offsets,
                    .loss_positions = loss_positions,
                    .loss_targets = loss_targets};
}

int64_t OwnedMicroBatch::RowOfLoss(int64_t loss_index) const {
  MT_CHECK(loss_index >= 0 && loss_index < static_cast<int64_t>(loss_positions.size()));
  const auto next_start = std::upper_bound(document_offsets.begin(), document_offsets.end(),
                                           loss_positions[loss_index]);
  return rows[next_start - document_offsets.begin() - 1];
}

}  // namespace megatrain
