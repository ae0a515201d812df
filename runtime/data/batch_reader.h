#ifndef RUNTIME_DATA_BATCH_READER_H_
#define RUNTIME_DATA_BATCH_READER_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/data/prepared_data.h"
#include "runtime/data/step_batch.h"

namespace megatrain {

// How rows become steps. All counts are positive but where it says otherwise.
struct BatchOptions {
  int64_t batch_rows = 8;
  int64_t micro_batch_rows = 0;  // 0: all rows of the step in one micro-batch
  int64_t max_sequence_length = 1024;
  bool packing = false;  // a row is up to max_sequence_length tokens of whole documents
  int64_t seed = 0;
  int64_t epochs = 0;  // exactly one of epochs and steps is set
  int64_t steps = 0;
  double held_out_split = 0;  // in [0, 1): part of the rows that is set aside for evaluation
};

// Which rows of the data a reader deals out.
enum class RowPart {
  kTraining,  // all but those that are set aside
  kHeldOut,   // those
};

// The rows that are set aside, ascending: a pure function of its arguments, the first of
// RowOrder's epoch -1; at least one row and never all where `split` is positive, else none.
std::vector<int64_t> HeldOutRows(int64_t row_count, double split, int64_t seed,
                                 std::string_view fingerprint);

// Deals the rows of prepared data, or of a part of them, out to steps: in each epoch every row
// once, in RowOrder's order over the part's rows, batch_rows a step. A step never reaches over the
// end of an epoch, so an epoch's last step may have fewer rows. Not thread-safe. Refers to `data`.
class BatchReader {
 public:
  // INVALID_ARGUMENT for options out of range, for data whose rows are longer than
  // max_sequence_length, and for more than 2^40 steps.
  static absl::StatusOr<BatchReader> Create(const PreparedData& data, const BatchOptions& options,
                                            RowPart part = RowPart::kTraining);

  // Of the whole job.
  int64_t step_count() const { return step_count_; }

  // Goes to the beginning of step `step` in [0, step_count()], as if that many had been read.
  void Seek(int64_t step);

  // The next step's batch; at most to step_count(). Fails where reading the data fails.
  absl::StatusOr<StepBatch> Next();

 private:
  BatchReader(const PreparedData& data, const BatchOptions& options, RowPart part);

  int64_t row_count() const;
  int64_t EpochSteps() const;  // of the epoch that was started
  void StartEpoch(int64_t epoch);
  absl::Status CountSteps();
  absl::Status AppendRow(int64_t row_in_epoch, OwnedMicroBatch& micro_batch);

  const PreparedData& data_;
  BatchOptions options_;
  std::vector<int64_t> rows_;  // of the part; empty: all of the data
  int64_t step_count_ = 0;
  int64_t epoch_ = 0;
  std::vector<int64_t> order_;       // of this epoch's documents
  std::vector<int64_t> row_starts_;  // into order_, and its end
  int64_t next_row_ = 0;             // into row_starts_
  std::vector<int32_t> tokens_;      // of one document
  std::vector<uint8_t> trained_;
};

}  // namespace megatrain

#endif  // RUNTIME_DATA_BATCH_READER_H_
