#include "runtime/model/micro_batch_check.h"

#include <span>

#include "absl/strings/str_cat.h"

namespace megatrain {
namespace {

absl::Status CheckIds(std::span<const int32_t> ids, const char* what, int64_t vocab_size) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab_size) {
      return absl::InvalidArgumentError(absl::StrCat(what, " ", i, " of the micro-batch is id ",
                                                     ids[i], ", but the vocabulary has ",
                                                     vocab_size, " rows"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckDocuments(const MicroBatch& batch) {
  const size_t tokens = batch.tokens.size();
  if (batch.positions.size() != tokens) {
    return absl::InvalidArgumentError(absl::StrCat("micro-batch of ", tokens, " tokens with ",
                                                   batch.positions.size(),
                                                   " positions: give one position a token"));
  }
  const auto offsets = batch.document_offsets;
  if (offsets.empty() || offsets.front() != 0 || offsets.back() != static_cast<int64_t>(tokens)) {
    return absl::InvalidArgumentError(
        absl::StrCat("micro-batch: document_offsets must run from 0 to the token count ", tokens));
  }
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    if (offsets[i + 1] < offsets[i]) {
      return absl::InvalidArgumentError(
          absl::StrCat("micro-batch: document_offsets fall after document ", i));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckTokens(const MicroBatch& batch, int64_t vocab_size) {
  return CheckIds(batch.tokens, "token", vocab_size);
}

absl::Status CheckTargets(const MicroBatch& batch, int64_t vocab_size) {
  if (batch.loss_positions.size() != batch.loss_targets.size()) {
    return absl::InvalidArgumentError(absl::StrCat("micro-batch with ", batch.loss_positions.size(),
                                                   " loss positions but ",
                                                   batch.loss_targets.size(), " targets"));
  }
  int64_t previous = -1;
  for (const int32_t position : batch.loss_positions) {
    if (position <= previous || position >= static_cast<int64_t>(batch.tokens.size())) {
      return absl::InvalidArgumentError(absl::StrCat("micro-batch: loss position ", position,
                                                     " is not between the one before it and the ",
                                                     batch.tokens.size(), " tokens' end"));
    }
    previous = position;
  }
  return CheckIds(batch.loss_targets, "loss target", vocab_size);
}

}  // namespace megatrain
