// Trains what transformers and torch have trained, and expects the same: every backend's parity.

#ifndef TESTS_PARITY_REFERENCE_TRAINING_H_
#define TESTS_PARITY_REFERENCE_TRAINING_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "runtime/pipeline/step_result.h"
#include "runtime/trainer/compute_backend.h"
#include "tests/parity/reference_case.h"
#include "tests/parity/training_rig.h"

namespace megatrain {

// The case of that name in a folder that reference.py has written. Null, and a failure of the test,
// where there is none.
std::unique_ptr<ReferenceCase> OpenReferenceCase(const std::string& folder,
                                                 const std::string& name);

// A started rig with the case's weights. Aborts where there is none.
std::unique_ptr<TrainingRig> LoadRig(const ReferenceCase& reference, const RigOptions& options,
                                     ComputeBackend& backend);

// Trains the reference's steps, each in `micro_batch_count` micro-batches.
std::vector<StepResult> TrainReference(const ReferenceCase& reference, TrainingRig& rig,
                                       size_t step_count, int micro_batch_count);

// Relative, at most.
struct Tolerances {
  double loss;
  double norm;       // of all gradients
  double gradients;  // tensor by tensor
};

// The first step in 1, 2 and 8 micro-batches: its documents packed, and each by itself.
void ExpectFirstStep(const ReferenceCase& reference, ComputeDtype dtype, ComputeBackend& backend,
                     const Tolerances& tolerances);

// Twenty steps in fp32 with clipping move every tensor where the reference moved it, within 1e-3 of
// the way.
void ExpectTwentySteps(const ReferenceCase& reference, ComputeBackend& backend);

}  // namespace megatrain

#endif  // TESTS_PARITY_REFERENCE_TRAINING_H_
