// Small models with random weights, and training them: the engine against itself.

#ifndef TESTS_PARITY_TOY_TRAINING_H_
#define TESTS_PARITY_TOY_TRAINING_H_

#include <memory>
#include <string>
#include <vector>

#include "runtime/config/model_config.h"
#include "runtime/pipeline/step_result.h"
#include "runtime/trainer/compute_backend.h"
#include "tests/parity/documents.h"
#include "tests/parity/training_rig.h"

namespace megatrain {

enum class ToyFamily {
  kLlama,
  kQwen2,  // with biases
};

// Grouped queries; a shape that every backend computes.
ModelConfig ToyModelConfig(ToyFamily family, bool tied);

// Matrices and biases around 0, norms around 1; the same for all rigs of a layout.
void FillToyWeights(TrainingRig& rig);

// Six documents a step.
std::vector<std::vector<Document>> RandomSteps(int count);

// A rig with the toy's weights, not started. Null, and a failure of the test, where there is none.
std::unique_ptr<TrainingRig> MakeToyRig(const ModelConfig& config, const RigOptions& options,
                                        ComputeBackend& backend);

// The step on these micro-batches, with clipping and decay.
StepInput ToyStep(const std::vector<OwnedMicroBatch>& micro_batches);

// Trains a started rig on the steps, each submitted while `steps_ahead` before it (0 or 1) have not
// given their result, and drains it.
struct TrainingPlan {
  int micro_batches = 3;  // of each step
  int steps_ahead = 1;
};
std::vector<StepResult> TrainToy(TrainingRig& rig, const std::vector<std::vector<Document>>& steps,
                                 const TrainingPlan& plan);

// All that a training leaves, to the bit; of a large model's state, digests.
struct Outcome {
  std::vector<double> losses;
  std::vector<double> norms;
  std::string state;
  std::vector<uint32_t> state_digests;

  bool operator==(const Outcome&) const = default;
};
// Losses and norms of a rig that is not started yet, trained on the steps; empty, and a failure of
// the test, where it cannot be.
Outcome TrainedOutcome(TrainingRig& rig, const std::vector<std::vector<Document>>& steps,
                       const TrainingPlan& plan);
Outcome ToyOutcome(const ModelConfig& config, const RigOptions& options, ComputeBackend& backend,
                   const TrainingPlan& plan);

}  // namespace megatrain

#endif  // TESTS_PARITY_TOY_TRAINING_H_
