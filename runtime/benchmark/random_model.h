// Random weights and tokens: what a benchmark trains. Never zeros, which hardware is faster on.

#ifndef RUNTIME_BENCHMARK_RANDOM_MODEL_H_
#define RUNTIME_BENCHMARK_RANDOM_MODEL_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "runtime/config/model_layout.h"
#include "runtime/data/step_batch.h"
#include "runtime/hoststore/host_store.h"
#include "runtime/optimizer/optimizer_pool.h"

namespace megatrain {

// Fills the master weights of every unit with normal values of standard deviation 0.02, around 1
// for the norms' and around 0 for all others. The same weights whatever the number of threads. In a
// folded store layers that share memory get what the first of them is given.
void FillRandomWeights(const ModelLayout& layout, uint64_t seed, OptimizerPool& pool,
                       HostStore& store);

// What a step's tokens are cut into.
struct BatchShape {
  int64_t tokens = 0;              // of the step
  int64_t sequence_length = 0;     // of a row, which is one document; the last may be shorter
  int64_t micro_batch_tokens = 0;  // at most, whole rows
};

// Random tokens, each but a row's first with a loss. INVALID_ARGUMENT unless the counts are
// positive, a row has at least two tokens and fits in a micro-batch.
absl::StatusOr<StepBatch> RandomStep(const BatchShape& shape, int64_t vocab_size, uint64_t seed);

}  // namespace megatrain

#endif  // RUNTIME_BENCHMARK_RANDOM_MODEL_H_
