// What the pipeline's tests train: a small model, its store, random data, and the same training
// written as plain loops, one phase after another.

#ifndef RUNTIME_PIPELINE_SMALL_TRAINING_H_
#define RUNTIME_PIPELINE_SMALL_TRAINING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/config/model_layout.h"
#include "runtime/hoststore/host_store.h"
#include "runtime/model/layer_template.h"
#include "runtime/optimizer/adamw.h"
#include "runtime/pipeline/step_result.h"

namespace megatrain {

// Four layers of width 8, a vocabulary of 23.
ModelLayout SmallLayout(bool tied);

// Owns the arrays of a micro-batch.
struct SmallMicroBatch {
  std::vector<int32_t> tokens;
  std::vector<int32_t> positions;
  std::vector<int32_t> document_offsets;
  std::vector<int32_t> loss_positions;
  std::vector<int32_t> loss_targets;

  MicroBatch View() const;
};

struct SmallStep {
  std::vector<SmallMicroBatch> micro_batches;
  double max_gradient_norm = 0.05;

  StepInput Input() const;
};

// Limits that every step below keeps.
inline constexpr int kSmallMicroBatchTokens = 40;
inline constexpr int kSmallMicroBatches = 4;
inline constexpr int kSmallStepTokens = kSmallMicroBatches * kSmallMicroBatchTokens;

// Random documents and losses; steps of one to four micro-batches. The same for the same seed.
std::vector<SmallStep> SmallSteps(uint32_t seed, int count);

// A store with random weights and no moments, protected outside accesses.
std::unique_ptr<HostStore> SmallStore(const ModelLayout& layout, ComputeDtype dtype,
                                      std::vector<bool> gradients = {});

// hi, lo and both moments of every unit, as bytes: what training leaves.
std::string TrainedBytes(const ModelLayout& layout, HostStore& store);

// What a run of steps gives.
struct SmallOutcome {
  std::vector<double> losses;
  std::vector<double> gradient_norms;
  std::string trained_bytes;

  bool operator==(const SmallOutcome&) const = default;
};

// Forward, backward, norm, update of each step, in one thread and without slots, schedule or
// device: what every placement must equal in every bit.
SmallOutcome TrainInPlainLoops(bool tied, ComputeDtype dtype, const std::vector<SmallStep>& steps);

}  // namespace megatrain

#endif  // RUNTIME_PIPELINE_SMALL_TRAINING_H_
