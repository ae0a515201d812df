#include "runtime/data/batch_reader.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/data/prepared_data_for_test.h"
#include "runtime/data/row_order.h"
#include "runtime/data/row_packing.h"

namespace megatrain {
namespace {

std::unique_ptr<PreparedData> OpenRows(const std::vector<RowForTest>& rows) {
  absl::StatusOr<std::unique_ptr<PreparedData>> data =
      PreparedData::Open(WritePreparedData("batches", rows));
  EXPECT_TRUE(data.ok()) << data.status();
  return *std::move(data);
}

BatchReader MakeReader(const PreparedData& data, const BatchOptions& options) {
  absl::StatusOr<BatchReader> reader = BatchReader::Create(data, options);
  EXPECT_TRUE(reader.ok()) << reader.status();
  return *std::move(reader);
}

std::vector<StepBatch> AllSteps(const PreparedData& data, const BatchOptions& options) {
  BatchReader reader = MakeReader(data, options);
  std::vector<StepBatch> steps;
  for (int64_t i = 0; i < reader.step_count(); ++i) {
    absl::StatusOr<StepBatch> step = reader.Next();
    EXPECT_TRUE(step.ok()) << step.status();
    steps.push_back(*std::move(step));
  }
  return steps;
}

bool Same(const StepBatch& a, const StepBatch& b) {
  return a.token_count == b.token_count && a.loss_token_count == b.loss_token_count &&
         std::equal(a.micro_batches.begin(), a.micro_batches.end(), b.micro_batches.begin(),
                    b.micro_batches.end(), [](const auto& x, const auto& y) {
                      return x.rows == y.rows && x.tokens == y.tokens &&
                             x.loss_positions == y.loss_positions;
                    });
}

std::vector<int64_t> RowsOf(const std::vector<StepBatch>& steps) {
  std::vector<int64_t> rows;
  for (const StepBatch& step : steps) {
    for (const OwnedMicroBatch& micro_batch : step.micro_batches) {
      rows.insert(rows.end(), micro_batch.rows.begin(), micro_batch.rows.end());
    }
  }
  return rows;
}

// A micro-batch's documents are those rows, with a loss before each trained token.
void CheckDocuments(const OwnedMicroBatch& batch, const std::vector<RowForTest>& rows) {
  ASSERT_EQ(batch.document_offsets.size(), batch.rows.size() + 1);
  ASSERT_EQ(batch.document_offsets.back(), static_cast<int64_t>(batch.tokens.size()));
  std::vector<int32_t> losses;
  std::vector<int32_t> targets;
  for (size_t d = 0; d < batch.rows.size(); ++d) {
    const RowForTest& row = rows[batch.rows[d]];
    const int32_t start = batch.document_offsets[d];
    ASSERT_EQ(batch.document_offsets[d + 1] - start, static_cast<int64_t>(row.tokens.size()));
    for (size_t i = 0; i < row.tokens.size(); ++i) {
      EXPECT_EQ(batch.tokens[start + i], row.tokens[i]);
      EXPECT_EQ(batch.positions[start + i], static_cast<int32_t>(i));
      if (row.trained[i] == 1) {
        EXPECT_EQ(batch.RowOfLoss(static_cast<int64_t>(losses.size())), batch.rows[d]);
        losses.push_back(start + static_cast<int32_t>(i) - 1);
        targets.push_back(row.tokens[i]);
      }
    }
  }
  EXPECT_EQ(batch.loss_positions, losses);
  EXPECT_EQ(batch.loss_targets, targets);
}

TEST(RowOrderTest, IsAPermutationThatDependsOnEachArgument) {
  const std::vector<int64_t> order = RowOrder(1000, 7, 3, "abc");
  std::vector<int64_t> sorted = order;
  std::ranges::sort(sorted);
  std::vector<int64_t> all(1000);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(sorted, all);
  EXPECT_EQ(order, RowOrder(1000, 7, 3, "abc"));
  EXPECT_NE(order, RowOrder(1000, 8, 3, "abc"));
  EXPECT_NE(order, RowOrder(1000, 7, 4, "abc"));
  EXPECT_NE(order, RowOrder(1000, 7, 3, "abd"));
}

// A resumed run of a later version must meet the rows in the same order.
TEST(RowOrderTest, IsTheDocumentedOne) {
  // By the generator and the shuffle of row_order.h, written anew in Python.
  EXPECT_EQ(RowOrder(10, 0, 0, "fingerprint"),
            (std::vector<int64_t>{8, 1, 5, 9, 2, 4, 3, 6, 0, 7}));
}

TEST(RowOrderTest, PutsEachRowEquallyOftenAtEachPlace) {
  std::vector<std::vector<int>> counts(4, std::vector<int>(4));
  constexpr int kRounds = 4000;
  for (int seed = 0; seed < kRounds; ++seed) {
    const std::vector<int64_t> order = RowOrder(4, seed, 0, "");
    for (int place = 0; place < 4; ++place) {
      ++counts[place][order[place]];
    }
  }
  for (const std::vector<int>& place : counts) {
    for (const int count : place) {
      EXPECT_NEAR(count, kRounds / 4, 5 * 27.4);  // 5 standard deviations, sqrt(n p (1 - p))
    }
  }
}

TEST(PackRowsTest, FillsInOrderWithWholeDocuments) {
  const std::vector<int64_t> lengths = {3, 4, 5, 1, 8, 2};
  const std::vector<int64_t> documents = {0, 1, 2, 3, 4, 5};
  const auto tokens = [&](int64_t document) { return lengths[document]; };
  EXPECT_EQ(PackRows(documents, tokens, 8), (std::vector<int64_t>{0, 2, 4, 5, 6}));
  EXPECT_EQ(PackRows({}, tokens, 8), (std::vector<int64_t>{0}));
}

TEST(BatchReaderTest, RandomShapesDealEachRowOncePerEpoch) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const auto draw = [&random](int64_t low, int64_t high) {
      return std::uniform_int_distribution<int64_t>(low, high)(random);
    };
    const std::vector<RowForTest> rows = RandomRows(draw(1, 60), draw(2, 12), 50, seed);
    const std::unique_ptr<PreparedData> data = OpenRows(rows);
    BatchOptions options;
    options.batch_rows = draw(1, 9);
    options.micro_batch_rows = draw(0, options.batch_rows);
    options.max_sequence_length = 12 + draw(0, 12);
    options.packing = draw(0, 1) == 1;
    options.seed = draw(-5, 5);
    options.epochs = draw(1, 3);
    const std::vector<StepBatch> steps = AllSteps(*data, options);
    const std::vector<int64_t> met = RowsOf(steps);
    ASSERT_EQ(met.size(), rows.size() * options.epochs);
    for (int64_t epoch = 0; epoch < options.epochs; ++epoch) {
      const auto begin = met.begin() + epoch * static_cast<int64_t>(rows.size());
      EXPECT_EQ(std::vector<int64_t>(begin, begin + static_cast<int64_t>(rows.size())),
                RowOrder(static_cast<int64_t>(rows.size()), options.seed, epoch,
                         data->info().fingerprint));
    }
    EXPECT_EQ(met, RowsOf(AllSteps(*data, options)));
    int64_t loss_tokens = 0;
    for (const StepBatch& step : steps) {
      int64_t step_loss_tokens = 0;
      for (const OwnedMicroBatch& micro_batch : step.micro_batches) {
        CheckDocuments(micro_batch, rows);
        step_loss_tokens += static_cast<int64_t>(micro_batch.loss_positions.size());
        const int64_t micro_rows =
            options.micro_batch_rows == 0 ? options.batch_rows : options.micro_batch_rows;
        EXPECT_LE(static_cast<int64_t>(micro_batch.tokens.size()),
                  micro_rows * options.max_sequence_length);
      }
      EXPECT_EQ(step.loss_token_count, step_loss_tokens);
      loss_tokens += step_loss_tokens;
    }
    EXPECT_EQ(loss_tokens, data->info().trained_token_count * options.epochs);
  }
}

TEST(BatchReaderTest, MicroBatchesDivideTheSameStep) {
  const std::unique_ptr<PreparedData> data = OpenRows(RandomRows(21, 10, 50, 3));
  BatchOptions options{.batch_rows = 8, .micro_batch_rows = 0, .epochs = 1};
  const std::vector<StepBatch> whole = AllSteps(*data, options);
  ASSERT_EQ(whole.size(), 3u);
  EXPECT_EQ(whole[0].micro_batches.size(), 1u);
  options.micro_batch_rows = 3;
  const std::vector<StepBatch> divided = AllSteps(*data, options);
  ASSERT_EQ(divided.size(), 3u);
  EXPECT_EQ(divided[0].micro_batches.size(), 3u);
  EXPECT_EQ(divided[0].micro_batches[2].rows.size(), 2u);  // 8 = 3 + 3 + 2
  EXPECT_EQ(divided[2].micro_batches[1].rows.size(), 2u);  // the last step has 5 rows
  EXPECT_EQ(RowsOf(whole), RowsOf(divided));
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_EQ(whole[i].loss_token_count, divided[i].loss_token_count);
    EXPECT_EQ(whole[i].token_count, divided[i].token_count);
  }
}

TEST(BatchReaderTest, StepsGoOnIntoTheNextEpochs) {
  const std::unique_ptr<PreparedData> data = OpenRows(RandomRows(5, 10, 50, 4));
  const std::vector<StepBatch> steps = AllSteps(*data, {.batch_rows = 4, .steps = 5});
  ASSERT_EQ(steps.size(), 5u);
  std::vector<size_t> sizes;
  for (const StepBatch& step : steps) {
    sizes.push_back(step.micro_batches[0].rows.size());
  }
  EXPECT_EQ(sizes, (std::vector<size_t>{4, 1, 4, 1, 4}));
}

TEST(BatchReaderTest, PackedRowsNeverExceedTheLengthNorSplitADocument) {
  const std::vector<RowForTest> rows = RandomRows(80, 12, 50, 5);
  const std::unique_ptr<PreparedData> data = OpenRows(rows);
  const std::vector<StepBatch> steps =
      AllSteps(*data, {.batch_rows = 1, .max_sequence_length = 16, .packing = true, .epochs = 1});
  EXPECT_LT(steps.size(), rows.size());
  for (const StepBatch& step : steps) {
    EXPECT_LE(step.token_count, 16);
    CheckDocuments(step.micro_batches[0], rows);
  }
}

TEST(BatchReaderTest, OptionsOutOfRangeAreRefused) {
  const std::unique_ptr<PreparedData> data = OpenRows({{{1, 2, 3}, {0, 0, 1}}});
  const std::vector<BatchOptions> wrong = {
      {.batch_rows = 0, .epochs = 1},
      {.micro_batch_rows = -1, .epochs = 1},
      {.epochs = 0, .steps = 0},
      {.epochs = 1, .steps = 1},
      {.max_sequence_length = 2, .epochs = 1},
      {.epochs = INT64_MAX},
      {.steps = INT64_MAX},
  };
  for (const BatchOptions& options : wrong) {
    const absl::Status status = BatchReader::Create(*data, options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  }
}

// R12, R19: a reader that starts anywhere deals out what is left, to the byte.
TEST(BatchReaderTest, SeeksToEveryStep) {
  const auto data = OpenRows(RandomRows(21, 12, 64, 5));
  for (const bool packing : {false, true}) {
    const BatchOptions options{.batch_rows = 4,
                               .micro_batch_rows = 3,
                               .max_sequence_length = 24,
                               .packing = packing,
                               .seed = 9,
                               .steps = 20};
    const std::vector<StepBatch> steps = AllSteps(*data, options);
    for (size_t start = 0; start < steps.size(); ++start) {
      BatchReader reader = MakeReader(*data, options);
      reader.Seek(static_cast<int64_t>(start));
      for (size_t i = start; i < steps.size(); ++i) {
        EXPECT_TRUE(Same(*reader.Next(), steps[i])) << packing << " " << start << " " << i;
      }
    }
  }
}

TEST(BatchReaderTest, RowsThatAreSetAsideAreNeverTrainedOn) {
  const auto data = OpenRows(RandomRows(40, 12, 64, 7));
  BatchOptions options{
      .batch_rows = 8, .max_sequence_length = 12, .seed = 3, .epochs = 2, .held_out_split = 0.1};
  const std::vector<int64_t> held_out = HeldOutRows(40, 0.1, 3, data->info().fingerprint);
  ASSERT_EQ(held_out.size(), 4u);
  EXPECT_EQ(held_out, HeldOutRows(40, 0.1, 3, data->info().fingerprint));
  EXPECT_NE(held_out, HeldOutRows(40, 0.1, 4, data->info().fingerprint));

  std::vector<int64_t> trained = RowsOf(AllSteps(*data, options));
  ASSERT_EQ(trained.size(), 2 * 36u);
  std::vector<int64_t> evaluated;
  options.epochs = 1;
  auto reader = BatchReader::Create(*data, options, RowPart::kHeldOut);
  ASSERT_TRUE(reader.ok());
  ASSERT_EQ(reader->step_count(), 1);
  evaluated = RowsOf({*reader->Next()});
  std::sort(evaluated.begin(), evaluated.end());
  EXPECT_EQ(evaluated, held_out);
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::vector<int64_t> rows(trained.begin() + epoch * 36, trained.begin() + (epoch + 1) * 36);
    rows.insert(rows.end(), held_out.begin(), held_out.end());
    std::sort(rows.begin(), rows.end());
    std::vector<int64_t> all(40);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(rows, all) << epoch;
  }
}

TEST(BatchReaderTest, ASplitLeavesRowsOnBothSides) {
  EXPECT_TRUE(HeldOutRows(10, 0, 1, "f").empty());
  EXPECT_EQ(HeldOutRows(10, 1e-9, 1, "f").size(), 1u);
  EXPECT_EQ(HeldOutRows(10, 0.9999, 1, "f").size(), 9u);
  const auto data = OpenRows(RandomRows(5, 12, 64, 7));
  for (const double split : {-0.1, 1.0, std::numeric_limits<double>::quiet_NaN()}) {
    const auto reader = BatchReader::Create(
        *data, {.max_sequence_length = 12, .epochs = 1, .held_out_split = split});
    EXPECT_EQ(reader.status().code(), absl::StatusCode::kInvalidArgument) << split;
  }
}

}  // namespace
}  // namespace megatrain
