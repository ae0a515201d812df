// A real pretrained model and what transformers makes of a text, for every backend.

#ifndef TESTS_PARITY_REAL_MODEL_CASE_H_
#define TESTS_PARITY_REAL_MODEL_CASE_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/trainer/compute_backend.h"
#include "tests/parity/compared_placements.h"
#include "tests/parity/documents.h"
#include "tests/parity/training_rig.h"

namespace megatrain {

// What real_model_reference.py writes.
struct RealModelReference {
  Document document;  // the text, all of it trained
  double mean_loss = 0;
  double gradient_norm = 0;  // of the mean loss
};
absl::StatusOr<RealModelReference> ReadRealModelReference(const std::string& path);

// A started fp32 rig with the weights of a Hugging Face folder, for steps of so many tokens.
absl::StatusOr<std::unique_ptr<TrainingRig>> LoadRealModel(const std::string& folder,
                                                           int64_t max_tokens,
                                                           ComputeBackend& backend);

// The same with other options, not started.
absl::StatusOr<std::unique_ptr<TrainingRig>> MakeRealModelRig(const std::string& folder,
                                                              const RigOptions& options,
                                                              ComputeBackend& backend);

// Two steps of real text on the model of that folder: fails where a placement that the planner can
// choose does not leave the bits of the others. unit_count, chunks and tokens of `compared` are the
// model's.
void ExpectSameBitsEverywhere(const std::string& folder, ComparedModel compared,
                              ComputeBackend& backend);

// Names tests that have a dtype as their parameter.
std::string DtypeName(const ::testing::TestParamInfo<ComputeDtype>& info);

// The mean loss, within 1e-4.
void ExpectMeanLoss(const RealModelReference& reference, TrainingRig& rig);

// The norm of the text's gradient, within 1e-3, by a step that moves no weight.
void ExpectGradientNorm(const RealModelReference& reference, TrainingRig& rig);

}  // namespace megatrain

#endif  // TESTS_PARITY_REAL_MODEL_CASE_H_
