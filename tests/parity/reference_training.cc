#include "tests/parity/reference_training.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/model_io/load_model.h"
#include "tests/parity/documents.h"
#include "tests/parity/tensor_comparison.h"

namespace megatrain {
namespace {

void ExpectGradients(const ReferenceCase& reference, TrainingRig& rig, double tolerance) {
  ForEachTensor(rig.layout(), [&](int unit, const TensorLayout& tensor) {
    const auto want = reference.Tensor("gradient/" + tensor.name);
    ASSERT_TRUE(want.ok()) << want.status();
    EXPECT_LE(RelativeError(rig.Gradient(unit, tensor), *want), tolerance) << tensor.name;
  });
}

double GradientPlaneNorm(TrainingRig& rig) {
  double squared = 0;
  ForEachTensor(rig.layout(), [&](int unit, const TensorLayout& tensor) {
    squared += std::pow(Norm(rig.Gradient(unit, tensor)), 2);
  });
  return std::sqrt(squared);
}

void ExpectWay(const ReferenceCase& reference, TrainingRig& rig, TrainingRig& untrained) {
  ForEachTensor(rig.layout(), [&](int unit, const TensorLayout& tensor) {
    const auto want = reference.Tensor("final/" + tensor.name);
    ASSERT_TRUE(want.ok()) << want.status();
    const std::vector<double> before = untrained.Weights(unit, tensor);
    EXPECT_LE(
        RelativeError(Difference(rig.Weights(unit, tensor), before), Difference(*want, before)),
        1e-3)
        << tensor.name;
  });
}

}  // namespace

std::unique_ptr<ReferenceCase> OpenReferenceCase(const std::string& folder,
                                                 const std::string& name) {
  auto reference = ReferenceCase::Open(folder + "/" + name);
  EXPECT_TRUE(reference.ok()) << reference.status();
  return reference.ok() ? *std::move(reference) : nullptr;
}

std::unique_ptr<TrainingRig> LoadRig(const ReferenceCase& reference, const RigOptions& options,
                                     ComputeBackend& backend) {
  auto rig = TrainingRig::Create(reference.model().config(), options, backend);
  EXPECT_TRUE(rig.ok()) << rig.status();
  MT_CHECK(rig.ok());
  absl::Status status = LoadModel(reference.model(), (*rig)->layout(), (*rig)->store());
  EXPECT_TRUE(status.ok()) << status;
  status = (*rig)->Start();
  EXPECT_TRUE(status.ok()) << status;
  MT_CHECK(status.ok());
  return *std::move(rig);
}

std::vector<StepResult> TrainReference(const ReferenceCase& reference, TrainingRig& rig,
                                       size_t step_count, int micro_batch_count) {
  std::vector<StepResult> results;
  for (size_t step = 0; step < step_count; ++step) {
    const auto owned = Split(reference.steps()[step], micro_batch_count);
    const std::vector<MicroBatch> views = Views(owned);
    const absl::Status status = rig.pipeline().SubmitStep(
        {.micro_batches = views,
         .loss_token_count = LossTokenCount(views),
         .optimizer = {.learning_rate = reference.expected()["learning_rate"].get<double>(),
                       .weight_decay = 0.1},
         .max_gradient_norm = reference.expected()["max_gradient_norm"].get<double>()});
    EXPECT_TRUE(status.ok()) << status;
    auto result = rig.pipeline().WaitStep();
    EXPECT_TRUE(result.ok()) << result.status();
    if (!result.ok()) {
      break;
    }
    EXPECT_TRUE(result->finite);
    results.push_back(*std::move(result));
  }
  EXPECT_TRUE(rig.pipeline().Drain().ok());
  return results;
}

void ExpectFirstStep(const ReferenceCase& reference, ComputeDtype dtype, ComputeBackend& backend,
                     const Tolerances& tolerances) {
  const double loss = reference.expected()["losses"][0].get<double>();
  const double norm = reference.expected()["norms"][0].get<double>();
  for (const int micro_batches : {1, 2, 8}) {
    SCOPED_TRACE(micro_batches);
    const auto rig = LoadRig(reference, {.dtype = dtype}, backend);
    const std::vector<StepResult> results = TrainReference(reference, *rig, 1, micro_batches);
    ASSERT_EQ(results.size(), 1U);
    EXPECT_NEAR(results[0].loss / loss, 1.0, tolerances.loss);
    EXPECT_NEAR(results[0].gradient_norm / norm, 1.0, tolerances.norm);
    EXPECT_NEAR(results[0].gradient_norm / GradientPlaneNorm(*rig), 1.0, tolerances.norm);
    ExpectGradients(reference, *rig, tolerances.gradients);
  }
}

void ExpectTwentySteps(const ReferenceCase& reference, ComputeBackend& backend) {
  constexpr size_t kSteps = 20;
  const auto untrained = LoadRig(reference, {}, backend);
  for (const int micro_batches : {1, 3}) {
    SCOPED_TRACE(micro_batches);
    const auto rig = LoadRig(reference, {}, backend);
    const std::vector<StepResult> results = TrainReference(reference, *rig, kSteps, micro_batches);
    ASSERT_EQ(results.size(), kSteps);
    for (size_t step = 0; step < kSteps; ++step) {
      const double loss = reference.expected()["losses"][step].get<double>();
      const double norm = reference.expected()["norms"][step].get<double>();
      EXPECT_NEAR(results[step].loss / loss, 1.0, 1e-5);
      EXPECT_NEAR(results[step].gradient_norm / norm, 1.0, 1e-4);
      EXPECT_LT(results[step].clip_coefficient, 1.0) << "the case is meant to clip";
    }
    ExpectWay(reference, *rig, *untrained);
  }
}

}  // namespace megatrain
