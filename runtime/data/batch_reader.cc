#include "runtime/data/batch_reader.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/data/row_order.h"
#include "runtime/data/row_packing.h"

namespace megatrain {
namespace {

constexpr int64_t kMaxSteps = int64_t{1} << 40;

// The order that decides which rows are set aside; training's epochs count from 0.
constexpr int64_t kHoldOutEpoch = -1;

int64_t DivideUp(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

// Of [0, row_count) those that are not in `rows`, which ascend.
std::vector<int64_t> AllBut(const std::vector<int64_t>& rows, int64_t row_count) {
  std::vector<int64_t> all(row_count);
  std::iota(all.begin(), all.end(), 0);
  std::vector<int64_t> others;
  others.reserve(row_count - static_cast<int64_t>(rows.size()));
  std::set_difference(all.begin(), all.end(), rows.begin(), rows.end(), std::back_inserter(others));
  return others;
}

absl::Status CheckOptions(const BatchOptions& options, const PreparedDataInfo& info) {
  const auto refuse = [](auto&&... parts) {
    return absl::InvalidArgumentError(absl::StrCat(parts...));
  };
  if (options.batch_rows < 1) {
    return refuse("train.batch_rows is ", options.batch_rows, ": it must be at least 1");
  }
  if (options.micro_batch_rows < 0) {
    return refuse("train.micro_batch_rows is ", options.micro_batch_rows, ": it must not be < 0");
  }
  if (options.epochs < 0 || options.steps < 0 || (options.epochs > 0) == (options.steps > 0)) {
    return refuse("train: exactly one of epochs (", options.epochs, ") and steps (", options.steps,
                  ") must be greater than 0");
  }
  if (!(options.held_out_split >= 0 && options.held_out_split < 1)) {
    return refuse("evaluation.split is ", options.held_out_split,
                  ": it must be at least 0 and below 1");
  }
  if (options.held_out_split > 0 && info.row_count < 2) {
    return refuse("evaluation.split: one row cannot be divided");
  }
  if (info.longest_row_tokens > options.max_sequence_length) {
    return refuse("the data's longest row has ", info.longest_row_tokens,
                  " tokens but train.max_sequence_length is ", options.max_sequence_length,
                  ": prepare the data with that length");
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<int64_t> HeldOutRows(int64_t row_count, double split, int64_t seed,
                                 std::string_view fingerprint) {
  if (split <= 0 || row_count < 2) {
    return {};
  }
  std::vector<int64_t> rows = RowOrder(row_count, seed, kHoldOutEpoch, fingerprint);
  const auto wanted = static_cast<int64_t>(std::llround(split * static_cast<double>(row_count)));
  rows.resize(std::clamp<int64_t>(wanted, 1, row_count - 1));
  std::sort(rows.begin(), rows.end());
  return rows;
}

absl::StatusOr<BatchReader> BatchReader::Create(const PreparedData& data,
                                                const BatchOptions& options, RowPart part) {
  MT_RETURN_IF_ERROR(CheckOptions(options, data.info()));
  BatchReader reader(data, options, part);
  MT_RETURN_IF_ERROR(reader.CountSteps());
  reader.StartEpoch(0);
  return reader;
}

BatchReader::BatchReader(const PreparedData& data, const BatchOptions& options, RowPart part)
    : data_(data), options_(options) {
  if (options_.micro_batch_rows == 0) {
    options_.micro_batch_rows = options_.batch_rows;
  }
  const PreparedDataInfo& info = data_.info();
  rows_ = HeldOutRows(info.row_count, options_.held_out_split, options_.seed, info.fingerprint);
  if (part == RowPart::kTraining && !rows_.empty()) {
    rows_ = AllBut(rows_, info.row_count);
  }
}

int64_t BatchReader::row_count() const {
  return rows_.empty() ? data_.info().row_count : static_cast<int64_t>(rows_.size());
}

int64_t BatchReader::EpochSteps() const {
  return DivideUp(static_cast<int64_t>(row_starts_.size()) - 1, options_.batch_rows);
}

void BatchReader::StartEpoch(int64_t epoch) {
  epoch_ = epoch;
  next_row_ = 0;
  const PreparedDataInfo& info = data_.info();
  order_ = RowOrder(row_count(), options_.seed, epoch, info.fingerprint);
  for (int64_t& row : order_) {
    row = rows_.empty() ? row : rows_[row];
  }
  if (options_.packing) {
    row_starts_ = PackRows(
        order_, [this](int64_t row) { return data_.RowTokens(row); }, options_.max_sequence_length);
  } else {
    row_starts_.resize(row_count() + 1);
    std::iota(row_starts_.begin(), row_starts_.end(), 0);
  }
}

absl::Status BatchReader::CountSteps() {
  step_count_ = options_.steps;
  // Packing makes another number of rows of each order.
  const int64_t distinct_epochs = options_.packing ? options_.epochs : 0;
  for (int64_t epoch = 0; epoch < distinct_epochs && step_count_ <= kMaxSteps; ++epoch) {
    StartEpoch(epoch);
    step_count_ += EpochSteps();
  }
  if (options_.epochs > 0 && !options_.packing) {
    const int64_t epoch_steps = DivideUp(row_count(), options_.batch_rows);
    step_count_ =
        options_.epochs > kMaxSteps / epoch_steps ? kMaxSteps + 1 : options_.epochs * epoch_steps;
  }
  if (step_count_ > kMaxSteps) {
    return absl::InvalidArgumentError(
        absl::StrCat("train: more than ", kMaxSteps, " steps: ask for fewer epochs or steps"));
  }
  return absl::OkStatus();
}

void BatchReader::Seek(int64_t step) {
  int64_t epoch = 0;
  if (!options_.packing) {
    const int64_t epoch_steps = DivideUp(row_count(), options_.batch_rows);
    epoch = step / epoch_steps;
    step %= epoch_steps;
  }
  StartEpoch(epoch);
  while (step > EpochSteps()) {  // packing makes another number of rows of each order
    step -= EpochSteps();
    StartEpoch(++epoch);
  }
  next_row_ = std::min(step * options_.batch_rows, static_cast<int64_t>(row_starts_.size()) - 1);
}

absl::Status BatchReader::AppendRow(int64_t row_in_epoch, OwnedMicroBatch& micro_batch) {
  for (int64_t i = row_starts_[row_in_epoch]; i < row_starts_[row_in_epoch + 1]; ++i) {
    MT_RETURN_IF_ERROR(data_.ReadRow(order_[i], tokens_, trained_));
    micro_batch.Append(order_[i], tokens_, trained_);
  }
  return absl::OkStatus();
}

absl::StatusOr<StepBatch> BatchReader::Next() {
  const auto epoch_rows = [this] { return static_cast<int64_t>(row_starts_.size()) - 1; };
  if (next_row_ == epoch_rows()) {
    StartEpoch(epoch_ + 1);
  }
  const int64_t end = std::min(next_row_ + options_.batch_rows, epoch_rows());
  StepBatch step;
  while (next_row_ < end) {
    OwnedMicroBatch& micro_batch = step.micro_batches.emplace_back();
    const int64_t micro_batch_end = std::min(next_row_ + options_.micro_batch_rows, end);
    for (; next_row_ < micro_batch_end; ++next_row_) {
      MT_RETURN_IF_ERROR(AppendRow(next_row_, micro_batch));
    }
    step.token_count += static_cast<int64_t>(micro_batch.tokens.size());
    step.loss_token_count += static_cast<int64_t>(micro_batch.loss_positions.size());
  }
  return step;
}

}  // namespace megatrain
