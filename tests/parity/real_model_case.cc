#include "tests/parity/real_model_case.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "runtime/base/posix_file_system.h"
#include "runtime/base/status_macros.h"
#include "runtime/model_io/load_model.h"
#include "runtime/model_io/model_folder.h"
#include "tests/parity/toy_training.h"

namespace megatrain {
namespace {

constexpr int64_t kTextTokens = 128;  // at most of a step

// SmolLM2's tokens of a chat with a calculator and of a line of numbers.
const std::vector<int32_t> kChat = {1,    9690, 198,   2683, 359,  253, 17993, 30,  2,  198, 1,
                                    4093, 198,  44345, 216,  35,   34,  1232,  216, 33, 37,  30,
                                    2,    198,  1,     520,  9531, 198, 36,    39,  2};
const std::vector<int32_t> kNumbers = {216, 827, 216, 5600, 256, 33, 34,
                                       256, 35,  36,  1116, 37,  38, 198};

std::vector<std::vector<Document>> TextSteps() {
  const auto document = [](const std::vector<int32_t>& tokens, size_t first, size_t end) {
    Document result;
    result.tokens.assign(tokens.begin() + first, tokens.begin() + end);
    result.trained.assign(end - first, 1);
    return result;
  };
  return {{document(kChat, 0, 31), document(kNumbers, 0, 14), document(kChat, 10, 31)},
          {document(kNumbers, 0, 14), document(kChat, 0, 24), document(kChat, 5, 20)}};
}

}  // namespace

absl::StatusOr<RealModelReference> ReadRealModelReference(const std::string& path) {
  constexpr int64_t kMaxBytes = 1 << 20;
  PosixFileSystem file_system;
  MT_ASSIGN_OR_RETURN(const std::string text, file_system.ReadFile(path, kMaxBytes));
  const auto json = nlohmann::json::parse(text);
  RealModelReference reference;
  reference.document.tokens = json.at("tokens").get<std::vector<int32_t>>();
  reference.document.trained.assign(reference.document.tokens.size(), 1);
  reference.mean_loss = json.at("mean_loss").get<double>();
  reference.gradient_norm = json.at("gradient_norm").get<double>();
  return reference;
}

absl::StatusOr<std::unique_ptr<TrainingRig>> LoadRealModel(const std::string& folder,
                                                           int64_t max_tokens,
                                                           ComputeBackend& backend) {
  MT_ASSIGN_OR_RETURN(std::unique_ptr<TrainingRig> rig,
                      MakeRealModelRig(folder, {.max_tokens = max_tokens}, backend));
  MT_RETURN_IF_ERROR(rig->Start());
  return rig;
}

absl::StatusOr<std::unique_ptr<TrainingRig>> MakeRealModelRig(const std::string& folder,
                                                              const RigOptions& options,
                                                              ComputeBackend& backend) {
  PosixFileSystem file_system;
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<ModelFolder> model,
                      ModelFolder::Open(folder, file_system));
  MT_ASSIGN_OR_RETURN(std::unique_ptr<TrainingRig> rig,
                      TrainingRig::Create(model->config(), options, backend));
  MT_RETURN_IF_ERROR(LoadModel(*model, rig->layout(), rig->store()));
  return rig;
}

void ExpectSameBitsEverywhere(const std::string& folder, ComparedModel compared,
                              ComputeBackend& backend) {
  PosixFileSystem file_system;
  const auto model = ModelFolder::Open(folder, file_system);
  ASSERT_TRUE(model.ok()) << model.status();
  compared.unit_count = static_cast<int>((*model)->config().layer_count) + 2;
  compared.state_chunk_elements = int64_t{1} << 20;
  compared.slab_bytes = int64_t{1} << 20;
  compared.max_tokens = kTextTokens;
  ExpectEqualTrainings(PlacementsToCompare(compared), [&](const ComparedPlacement& placement) {
    const auto rig = MakeRealModelRig(folder, placement.options, backend);
    EXPECT_TRUE(rig.ok()) << rig.status();
    if (!rig.ok()) {
      return Outcome();
    }
    Outcome outcome = TrainedOutcome(**rig, TextSteps(),
                                     {.micro_batches = 2, .steps_ahead = placement.steps_ahead});
    outcome.state_digests = (*rig)->StateDigests();
    return outcome;
  });
}

std::string DtypeName(const ::testing::TestParamInfo<ComputeDtype>& info) {
  return info.param == ComputeDtype::kBfloat16 ? "Bf16" : "Fp32";
}

void ExpectMeanLoss(const RealModelReference& reference, TrainingRig& rig) {
  const OwnedMicroBatch batch({&reference.document, 1});
  const std::vector<MicroBatch> views = {batch.View()};
  const auto loss = rig.pipeline().Evaluate(views);
  ASSERT_TRUE(loss.ok()) << loss.status();
  const auto count = static_cast<double>(LossTokenCount(views));
  EXPECT_NEAR(*loss / count / reference.mean_loss, 1.0, 1e-4);
}

void ExpectGradientNorm(const RealModelReference& reference, TrainingRig& rig) {
  const OwnedMicroBatch batch({&reference.document, 1});
  const std::vector<MicroBatch> views = {batch.View()};
  const absl::Status status = rig.pipeline().SubmitStep({.micro_batches = views,
                                                         .loss_token_count = LossTokenCount(views),
                                                         .optimizer = {.learning_rate = 0.0}});
  ASSERT_TRUE(status.ok()) << status;
  const auto result = rig.pipeline().WaitStep();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_NEAR(result->gradient_norm / reference.gradient_norm, 1.0, 1e-3);
  EXPECT_TRUE(rig.pipeline().Drain().ok());
}

}  // namespace megatrain
