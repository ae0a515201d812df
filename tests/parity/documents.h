// Training data of tests, and how it is put into micro-batches.

#ifndef TESTS_PARITY_DOCUMENTS_H_
#define TESTS_PARITY_DOCUMENTS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/model/layer_template.h"

namespace megatrain {

struct Document {
  std::vector<int32_t> tokens;
  std::vector<int32_t> trained;  // 1: this token is predicted with a loss; the first never is
};

// A micro-batch with the memory that it views.
class OwnedMicroBatch {
 public:
  explicit OwnedMicroBatch(std::span<const Document> documents);

  MicroBatch View() const;

 private:
  std::vector<int32_t> tokens_;
  std::vector<int32_t> positions_;
  std::vector<int32_t> offsets_ = {0};
  std::vector<int32_t> loss_positions_;
  std::vector<int32_t> loss_targets_;
};

// The documents in order, as evenly as their number allows, in `micro_batch_count` micro-batches.
std::vector<OwnedMicroBatch> Split(std::span<const Document> documents, int micro_batch_count);

std::vector<MicroBatch> Views(const std::vector<OwnedMicroBatch>& micro_batches);

int64_t LossTokenCount(std::span<const MicroBatch> micro_batches);

}  // namespace megatrain

#endif  // TESTS_PARITY_DOCUMENTS_H_
