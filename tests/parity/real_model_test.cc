// A real pretrained model: a wrong order of the rotated channels, a wrong epsilon or a wrong tie
// shows in its loss, where random weights would hide it.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "runtime/base/posix_file_system.h"
#include "runtime/model_io/load_model.h"
#include "runtime/model_io/model_folder.h"
#include "tests/parity/documents.h"
#include "tests/parity/reference_case.h"
#include "tests/parity/training_rig.h"

namespace megatrain {
namespace {

TEST(RealModel, MeanLossOfAnEnglishTextIsTransformers) {
  const std::string folder = ::testing::TempDir() + "/smollm2";
  const std::string output = ::testing::TempDir() + "/reference.json";
  ASSERT_TRUE(RunPython("deploy/smollm2/unpack.py '" + folder + "'"));
  ASSERT_TRUE(RunPython("tests/parity/real_model_reference.py '" + folder +
                        "' tests/testdata/english.txt '" + output + "'"));
  PosixFileSystem file_system;
  const auto text = file_system.ReadFile(output, 1 << 20);
  ASSERT_TRUE(text.ok()) << text.status();
  const auto reference = nlohmann::json::parse(*text);

  const auto model = ModelFolder::Open(folder, file_system);
  ASSERT_TRUE(model.ok()) << model.status();
  const auto tokens = reference.at("tokens").get<std::vector<int32_t>>();
  ASSERT_GT(tokens.size(), 400U);
  const auto rig =
      TrainingRig::Create((*model)->config(), {.max_tokens = static_cast<int64_t>(tokens.size())});
  ASSERT_TRUE(rig.ok()) << rig.status();
  ASSERT_TRUE(LoadModel(**model, (*rig)->layout(), (*rig)->store()).ok());
  ASSERT_TRUE((*rig)->Start().ok());

  const Document document = {.tokens = tokens, .trained = std::vector<int32_t>(tokens.size(), 1)};
  const OwnedMicroBatch batch({&document, 1});
  const std::vector<MicroBatch> views = {batch.View()};
  const auto loss = (*rig)->pipeline().Evaluate(views);
  ASSERT_TRUE(loss.ok()) << loss.status();
  EXPECT_NEAR(
      *loss / static_cast<double>(tokens.size() - 1) / reference.at("mean_loss").get<double>(), 1.0,
      1e-4);
}

}  // namespace
}  // namespace megatrain
