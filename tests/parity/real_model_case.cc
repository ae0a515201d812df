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

namespace megatrain {

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
  PosixFileSystem file_system;
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<ModelFolder> model,
                      ModelFolder::Open(folder, file_system));
  MT_ASSIGN_OR_RETURN(std::unique_ptr<TrainingRig> rig,
                      TrainingRig::Create(model->config(), {.max_tokens = max_tokens}, backend));
  MT_RETURN_IF_ERROR(LoadModel(*model, rig->layout(), rig->store()));
  MT_RETURN_IF_ERROR(rig->Start());
  return rig;
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
