#include "runtime/model/cuda_batch_tables.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/model/carver.h"
#include "runtime/model/micro_batch_check.h"

namespace megatrain {
namespace {

struct TableCounts {
  int64_t tokens;
  int64_t losses;
  int64_t documents;
};

BatchTables Place(const AttentionShape& shape, const TableCounts& counts, void* base) {
  Carver carver(base);
  BatchTables tables = {};
  tables.tokens = carver.TakeArray<int32_t>(counts.tokens);
  tables.positions = carver.TakeArray<int32_t>(counts.tokens);
  tables.loss_positions = carver.TakeArray<int32_t>(counts.losses);
  tables.loss_targets = carver.TakeArray<int32_t>(counts.losses);
  tables.order = carver.TakeArray<int32_t>(counts.tokens);
  tables.segment_starts = carver.TakeArray<int32_t>(counts.tokens + 1);
  tables.segment_tokens = carver.TakeArray<int32_t>(counts.tokens);
  tables.attention = carver.Take(AttentionTableBytes(shape, counts.tokens, counts.documents));
  tables.used_bytes = carver.next();
  tables.size_bytes = carver.size_bytes();
  return tables;
}

// Positions by token, ascending within a token: a stable radix sort, digit by digit.
void SortByToken(std::span<const int32_t> tokens, std::span<int32_t> order) {
  constexpr int kDigitBits = 11;
  constexpr int32_t kDigits = 1 << kDigitBits;
  std::iota(order.begin(), order.end(), 0);
  std::vector<int32_t> sorted(order.size());
  const int32_t largest = *std::max_element(tokens.begin(), tokens.end());
  for (int shift = 0; shift < 31 && largest >> shift > 0; shift += kDigitBits) {
    std::array<int32_t, kDigits> next = {};
    const auto digit = [&](int32_t position) { return tokens[position] >> shift & (kDigits - 1); };
    for (const int32_t position : order) {
      ++next[digit(position)];
    }
    std::exclusive_scan(next.begin(), next.end(), next.begin(), 0);
    for (const int32_t position : order) {
      sorted[next[digit(position)]++] = position;
    }
    std::copy(sorted.begin(), sorted.end(), order.begin());
  }
}

// Returns the number of segments.
int64_t FillSegments(std::span<const int32_t> tokens, const BatchTables& tables) {
  const auto count = static_cast<int32_t>(tokens.size());
  SortByToken(tokens, {tables.order, tokens.size()});
  int64_t segments = 0;
  for (int32_t i = 0; i < count; ++i) {
    const int32_t token = tokens[tables.order[i]];
    if (segments == 0 || tables.segment_tokens[segments - 1] != token) {
      tables.segment_starts[segments] = i;
      tables.segment_tokens[segments++] = token;
    }
  }
  tables.segment_starts[segments] = count;
  return segments;
}

absl::Status CheckPositions(const MicroBatch& batch, const MicroBatchLimits& limits) {
  for (size_t i = 0; i < batch.positions.size(); ++i) {
    if (batch.positions[i] < 0 || batch.positions[i] >= limits.document_tokens) {
      return absl::InvalidArgumentError(absl::StrCat(
          "micro-batch: token ", i, " is at position ", batch.positions[i],
          " of its document, but documents have at most ", limits.document_tokens, " tokens"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckLimit(const char* what, int64_t value, int64_t limit) {
  if (value >= 1 && value <= limit) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("micro-batch with ", what, " = ", value, ": must be 1 to ", limit));
}

int64_t DocumentCount(const MicroBatch& batch) {
  return static_cast<int64_t>(batch.document_offsets.size()) - 1;
}

}  // namespace

BatchTables PlaceBatchTables(const AttentionShape& shape, const MicroBatch& batch, void* base) {
  return Place(shape,
               {.tokens = static_cast<int64_t>(batch.tokens.size()),
                .losses = static_cast<int64_t>(batch.loss_positions.size()),
                .documents = DocumentCount(batch)},
               base);
}

int64_t MaxBatchTableBytes(const AttentionShape& shape, const MicroBatchLimits& limits) {
  return Place(shape,
               {.tokens = limits.tokens, .losses = limits.tokens, .documents = limits.documents},
               nullptr)
      .size_bytes;
}

int64_t FillBatchTables(const AttentionShape& shape, const MicroBatch& batch,
                        const BatchTables& tables) {
  std::copy(batch.tokens.begin(), batch.tokens.end(), tables.tokens);
  std::copy(batch.positions.begin(), batch.positions.end(), tables.positions);
  std::copy(batch.loss_positions.begin(), batch.loss_positions.end(), tables.loss_positions);
  std::copy(batch.loss_targets.begin(), batch.loss_targets.end(), tables.loss_targets);
  FillAttentionTables(shape, batch.document_offsets, tables.attention);
  return FillSegments(batch.tokens, tables);
}

int64_t LongestDocument(const MicroBatch& batch) {
  int32_t longest = 0;
  for (int64_t i = 0; i < DocumentCount(batch); ++i) {
    longest = std::max(longest, batch.document_offsets[i + 1] - batch.document_offsets[i]);
  }
  return longest;
}

absl::Status CheckMicroBatch(const MicroBatch& batch, int64_t vocab_size,
                             const MicroBatchLimits& limits) {
  MT_RETURN_IF_ERROR(CheckDocuments(batch));
  MT_RETURN_IF_ERROR(CheckTokens(batch, vocab_size));
  MT_RETURN_IF_ERROR(CheckTargets(batch, vocab_size));
  MT_RETURN_IF_ERROR(
      CheckLimit("tokens", static_cast<int64_t>(batch.tokens.size()), limits.tokens));
  MT_RETURN_IF_ERROR(CheckLimit("documents", DocumentCount(batch), limits.documents));
  MT_RETURN_IF_ERROR(
      CheckLimit("tokens of a document", LongestDocument(batch), limits.document_tokens));
  return CheckPositions(batch, limits);
}

}  // namespace megatrain
