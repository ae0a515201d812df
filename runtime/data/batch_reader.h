#ifndef RUNTIME_DATA_BATCH_READER_H_
#define RUNTIME_DATA_BATCH_READER_H_

#include <cstdint>
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
};

// Deals the rows of prepared data out to steps: in each epoch every row once, in RowOrder's order,
// batch_rows a step. A step never reaches over the end of an epoch, so an epoch's last step may
// have fewer rows. Not thread-safe. Refers to `data`.
class BatchReader {
 public:
  // INVALID_ARGUMENT for options out of range, for data whose rows are longer than
  // max_sequence_length, and for more than 2^40 steps.
  static absl::StatusOr<BatchReader> Create(const PreparedData& data, const BatchOptions& options);

  // Of the whole job.
  int64_t step_count() const { return step_count_; }

  // The next step's batch; at most step_count() calls. Fails where reading the data fails.
  absl::StatusOr<StepBatch> Next();

 private:
  BatchReader(const PreparedData& data, const BatchOptions& options);

  void StartEpoch(int64_t epoch);
  absl::Status CountSteps();
  absl::Status AppendRow(int64_t row_in_epoch, OwnedMicroBatch& micro_batch);

  const PreparedData& data_;
  BatchOptions options_;
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
