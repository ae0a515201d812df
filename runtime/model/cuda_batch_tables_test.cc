#include "runtime/model/cuda_batch_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/model/direct_model.h"

namespace megatrain {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr int kSeed = 5;
constexpr MicroBatchLimits kLimits = {.tokens = 4096, .document_tokens = 2048, .documents = 64};
constexpr AttentionShape kShape = {.max_tokens = 4096, .heads = 6, .kv_heads = 2, .head_dim = 16};

RandomBatch Batch(const std::vector<int64_t>& lengths, int64_t vocab_size) {
  std::mt19937 random(kSeed);
  return RandomBatch(lengths, vocab_size, 3, random);
}

// The tables in host memory, poisoned first.
class FilledTables {
 public:
  explicit FilledTables(const MicroBatch& batch)
      : memory_(MaxBatchTableBytes(kShape, kLimits)),
        tables_(PlaceBatchTables(kShape, batch, memory_.data())) {
    std::fill_n(static_cast<unsigned char*>(memory_.data()), memory_.size_bytes(), 0xFF);
    distinct_tokens_ = FillBatchTables(kShape, batch, tables_);
  }
  int64_t distinct_tokens() const { return distinct_tokens_; }
  const BatchTables& operator*() const { return tables_; }
  const BatchTables* operator->() const { return &tables_; }

 private:
  AlignedMemory memory_;
  BatchTables tables_;
  int64_t distinct_tokens_;
};

std::span<const int32_t> Span(const int32_t* data, size_t count) { return {data, count}; }

TEST(BatchTables, HoldTheBatchAsItIs) {
  const RandomBatch batch = Batch({9, 200, 1, 33}, 97);
  const FilledTables tables(batch.View());
  EXPECT_THAT(Span(tables->tokens, batch.tokens.size()), ElementsAreArray(batch.tokens));
  EXPECT_THAT(Span(tables->positions, batch.tokens.size()), ElementsAreArray(batch.positions));
  EXPECT_THAT(Span(tables->loss_positions, batch.loss_positions.size()),
              ElementsAreArray(batch.loss_positions));
  EXPECT_THAT(Span(tables->loss_targets, batch.loss_targets.size()),
              ElementsAreArray(batch.loss_targets));
  std::vector<unsigned char> attention(AttentionTableBytes(kShape, 243, 4));
  FillAttentionTables(kShape, batch.offsets, attention.data());
  EXPECT_TRUE(std::equal(attention.begin(), attention.end(),
                         static_cast<const unsigned char*>(tables->attention)));
}

// One token, few, many, and ids of one, two and three digits of the sort.
TEST(BatchTables, SegmentsHoldEveryPositionOnceInOrder) {
  for (const int64_t vocab_size : {1, 2, 97, 5000, 151936, 2147483647}) {
    const RandomBatch batch = Batch({1800, 900, 500}, vocab_size);
    const FilledTables tables(batch.View());
    const auto count = static_cast<int32_t>(batch.tokens.size());
    std::vector<int32_t> expected(count);
    std::iota(expected.begin(), expected.end(), 0);
    std::sort(expected.begin(), expected.end(), [&](int32_t a, int32_t b) {
      return std::tie(batch.tokens[a], a) < std::tie(batch.tokens[b], b);
    });
    EXPECT_THAT(Span(tables->order, count), ElementsAreArray(expected));

    std::vector<int32_t> distinct = batch.tokens;
    std::sort(distinct.begin(), distinct.end());
    distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
    EXPECT_THAT(Span(tables->segment_tokens, distinct.size()), ElementsAreArray(distinct));
    EXPECT_EQ(tables->segment_starts[0], 0);
    EXPECT_EQ(tables->segment_starts[distinct.size()], count);
    for (size_t s = 0; s < distinct.size(); ++s) {
      ASSERT_LT(tables->segment_starts[s], tables->segment_starts[s + 1]);
      for (int32_t i = tables->segment_starts[s]; i < tables->segment_starts[s + 1]; ++i) {
        ASSERT_EQ(batch.tokens[tables->order[i]], distinct[s]);
      }
    }
    EXPECT_EQ(tables.distinct_tokens(), static_cast<int64_t>(distinct.size()));
  }
}

TEST(BatchTables, NoBatchWithinTheLimitsTakesMore) {
  const int64_t enough = MaxBatchTableBytes(kShape, kLimits);
  for (const std::vector<int64_t>& lengths :
       {std::vector<int64_t>{1}, std::vector<int64_t>(64, 64), std::vector<int64_t>{2048, 2048},
        std::vector<int64_t>(63, 65)}) {
    std::mt19937 random(kSeed);
    const RandomBatch batch(lengths, 97, 1, random);
    const BatchTables tables = PlaceBatchTables(kShape, batch.View(), nullptr);
    EXPECT_LE(tables.size_bytes, enough);
    EXPECT_LE(tables.used_bytes, tables.size_bytes);
  }
}

TEST(CheckMicroBatch, NamesWhatIsWrong) {
  const RandomBatch good = Batch({9, 200}, 97);
  EXPECT_TRUE(CheckMicroBatch(good.View(), 97, kLimits).ok());
  EXPECT_EQ(LongestDocument(good.View()), 200);
  const auto message = [&](const RandomBatch& batch, const MicroBatchLimits& limits) {
    const absl::Status status = CheckMicroBatch(batch.View(), 97, limits);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  RandomBatch batch = good;
  batch.tokens[3] = 97;
  EXPECT_THAT(message(batch, kLimits), HasSubstr("token 3 of the micro-batch is id 97"));
  batch = good;
  batch.loss_targets[1] = -1;
  EXPECT_THAT(message(batch, kLimits), HasSubstr("loss target 1 of the micro-batch is id -1"));
  batch = good;
  batch.offsets.back() = 13;
  EXPECT_THAT(message(batch, kLimits), HasSubstr("from 0 to the token count 209"));
  batch = good;
  batch.positions[7] = 2048;
  EXPECT_THAT(message(batch, kLimits), HasSubstr("token 7 is at position 2048"));
  EXPECT_THAT(message(good, {.tokens = 208, .document_tokens = 2048, .documents = 64}),
              HasSubstr("tokens = 209: must be 1 to 208"));
  EXPECT_THAT(message(good, {.tokens = 4096, .document_tokens = 199, .documents = 64}),
              HasSubstr("tokens of a document = 200: must be 1 to 199"));
  EXPECT_THAT(message(good, {.tokens = 4096, .document_tokens = 2048, .documents = 1}),
              HasSubstr("documents = 2: must be 1 to 1"));
  const RandomBatch empty = Batch({}, 97);
  EXPECT_THAT(message(empty, kLimits), HasSubstr("tokens = 0: must be 1 to 4096"));
}

}  // namespace
}  // namespace megatrain
