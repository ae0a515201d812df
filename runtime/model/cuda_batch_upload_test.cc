#include "runtime/model/cuda_batch_upload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "runtime/kernels/device_array_for_test.h"
#include "runtime/model/cuda_batch_tables.h"
#include "runtime/model/direct_model.h"

namespace megatrain {
namespace {

using Bytes = DeviceArray<unsigned char>;

constexpr int kSeed = 9;
constexpr int kBatches = 70;  // more than there is pinned memory for
constexpr int64_t kVocabSize = 5000;
constexpr MicroBatchLimits kLimits = {.tokens = 2000, .document_tokens = 1000, .documents = 16};
constexpr AttentionShape kShape = {.max_tokens = 2000, .heads = 6, .kv_heads = 2, .head_dim = 16};

std::vector<RandomBatch> Batches() {
  std::mt19937 random(kSeed);
  std::vector<RandomBatch> batches;
  for (int i = 0; i < kBatches; ++i) {
    const std::vector<int64_t> lengths = {static_cast<int64_t>(1 + random() % 1000), 1,
                                          static_cast<int64_t>(1 + random() % 900)};
    batches.emplace_back(lengths, kVocabSize, 2, random);
  }
  return batches;
}

template <typename Element>
bool Same(const Element* a, const Element* b, size_t count) {
  return std::equal(a, a + count, b);
}

// `uploaded` begins with the first table, as device arrays are aligned.
void ExpectTables(const MicroBatch& batch, const std::vector<unsigned char>& uploaded) {
  const AlignedMemory actual_memory(static_cast<int64_t>(uploaded.size()));
  const AlignedMemory expected_memory(static_cast<int64_t>(uploaded.size()));
  const BatchTables actual = PlaceBatchTables(kShape, batch, actual_memory.data());
  const BatchTables expected = PlaceBatchTables(kShape, batch, expected_memory.data());
  std::memcpy(actual.tokens, uploaded.data(), actual.used_bytes);
  const size_t distinct = FillBatchTables(kShape, batch, expected);
  const size_t tokens = batch.tokens.size();
  const size_t losses = batch.loss_positions.size();
  const size_t attention_bytes = AttentionTableBytes(kShape, static_cast<int64_t>(tokens), 3);
  EXPECT_TRUE(Same(actual.tokens, expected.tokens, tokens));
  EXPECT_TRUE(Same(actual.positions, expected.positions, tokens));
  EXPECT_TRUE(Same(actual.loss_positions, expected.loss_positions, losses));
  EXPECT_TRUE(Same(actual.loss_targets, expected.loss_targets, losses));
  EXPECT_TRUE(Same(actual.order, expected.order, tokens));
  EXPECT_TRUE(Same(actual.segment_starts, expected.segment_starts, distinct + 1));
  EXPECT_TRUE(Same(actual.segment_tokens, expected.segment_tokens, distinct));
  EXPECT_EQ(std::memcmp(actual.attention, expected.attention, attention_bytes), 0);
}

// Behind work that keeps the stream busy, so that many uploads are under way at once.
TEST(BatchUploader, EveryBatchArrivesWhole) {
  const int64_t table_bytes = MaxBatchTableBytes(kShape, kLimits);
  const auto uploader = BatchUploader::Create(table_bytes);
  ASSERT_TRUE(uploader.ok()) << uploader.status();
  const std::vector<RandomBatch> batches = Batches();
  std::vector<std::unique_ptr<Bytes>> tables;
  for (int i = 0; i < kBatches; ++i) {
    tables.push_back(std::make_unique<Bytes>(table_bytes));
  }
  cudaStream_t stream = nullptr;
  CheckCuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  constexpr int64_t kBusyBytes = int64_t{1} << 28;
  Bytes busy(kBusyBytes);
  for (int i = 0; i < kBatches; ++i) {
    CheckCuda(cudaMemsetAsync(busy.data(), i, kBusyBytes, stream), "cudaMemsetAsync");
    const auto distinct = (*uploader)->Upload(kShape, batches[i].View(), tables[i]->data(), stream);
    ASSERT_TRUE(distinct.ok()) << distinct.status();
    const std::set<int32_t> tokens(batches[i].tokens.begin(), batches[i].tokens.end());
    EXPECT_EQ(*distinct, static_cast<int64_t>(tokens.size()));
  }
  CheckCuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  for (int i = 0; i < kBatches; ++i) {
    ExpectTables(batches[i].View(), tables[i]->Download());
  }
  CheckCuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
}

}  // namespace
}  // namespace megatrain
