#include "tests/parity/documents.h"

namespace megatrain {

OwnedMicroBatch::OwnedMicroBatch(std::span<const Document> documents) {
  for (const Document& document : documents) {
    for (size_t i = 0; i < document.tokens.size(); ++i) {
      if (i > 0 && document.trained[i] != 0) {
        loss_positions_.push_back(static_cast<int32_t>(tokens_.size()) - 1);
        loss_targets_.push_back(document.tokens[i]);
      }
      tokens_.push_back(document.tokens[i]);
      positions_.push_back(static_cast<int32_t>(i));
    }
    offsets_.push_back(static_cast<int32_t>(tokens_.size()));
  }
}

MicroBatch OwnedMicroBatch::View() const {
  return {.tokens = tokens_,
          .positions = positions_,
          .document_offsets = offsets_,
          .loss_positions = loss_positions_,
          .loss_targets = loss_targets_};
}

std::vector<OwnedMicroBatch> Split(std::span<const Document> documents, int micro_batch_count) {
  std::vector<OwnedMicroBatch> micro_batches;
  const size_t count = micro_batch_count;
  for (size_t i = 0; i < count; ++i) {
    const size_t first = documents.size() * i / count;
    const size_t end = documents.size() * (i + 1) / count;
    micro_batches.emplace_back(documents.subspan(first, end - first));
  }
  return micro_batches;
}

std::vector<MicroBatch> Views(const std::vector<OwnedMicroBatch>& micro_batches) {
  std::vector<MicroBatch> views;
  views.reserve(micro_batches.size());
  for (const OwnedMicroBatch& micro_batch : micro_batches) {
    views.push_back(micro_batch.View());
  }
  return views;
}

int64_t LossTokenCount(std::span<const MicroBatch> micro_batches) {
  int64_t count = 0;
  for (const MicroBatch& micro_batch : micro_batches) {
    count += static_cast<int64_t>(micro_batch.loss_positions.size());
  }
  return count;
}

}  // namespace megatrain
