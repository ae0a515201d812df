// A real pretrained model: a wrong order of the rotated channels, a wrong epsilon or a wrong tie
// shows in its loss, where random weights would hide it.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/posix_file_system.h"
#include "runtime/hoststore/split_float.h"
#include "runtime/model/direct_model.h"
#include "runtime/model/model_templates.h"
#include "runtime/model/workspace_size.h"
#include "runtime/model_io/model_folder.h"
#include "tests/parity/documents.h"
#include "tests/parity/real_model_case.h"
#include "tests/parity/reference_case.h"
#include "tests/parity/training_rig.h"

namespace megatrain {
namespace {

constexpr int64_t kLogitRows = 32;

// The unpacked model and what transformers makes of the text, once for all tests.
class RealModel : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const std::string folder = ::testing::TempDir() + "/smollm2";
    const std::string output = ::testing::TempDir() + "/reference.json";
    ASSERT_TRUE(RunPython("deploy/smollm2/unpack.py '" + folder + "'"));
    ASSERT_TRUE(RunPython("tests/parity/real_model_reference.py '" + folder +
                          "' tests/testdata/english.txt '" + output + "'"));
    const auto reference = ReadRealModelReference(output);
    ASSERT_TRUE(reference.ok()) << reference.status();
    reference_ = *reference;
    const auto tokens = static_cast<int64_t>(reference_.document.tokens.size());
    ASSERT_GT(tokens, 400);
    PosixFileSystem file_system;
    const auto logits = file_system.ReadFile(output + ".logits", 1 << 26);
    ASSERT_TRUE(logits.ok()) << logits.status();
    logits_.resize(logits->size() / sizeof(float));
    std::memcpy(logits_.data(), logits->data(), logits->size());

    const auto model = ModelFolder::Open(folder, file_system);
    ASSERT_TRUE(model.ok()) << model.status();
    config_ = (*model)->config();
    auto rig = LoadRealModel(folder, tokens, CpuBackendForTest());
    ASSERT_TRUE(rig.ok()) << rig.status();
    rig_ = *std::move(rig);
  }

  static void TearDownTestSuite() { rig_.reset(); }

  static inline ModelConfig config_;
  static inline RealModelReference reference_;
  static inline std::vector<float> logits_;  // transformers', [kLogitRows, vocab]
  static inline std::unique_ptr<TrainingRig> rig_;
};

TEST_F(RealModel, MeanLossOfAnEnglishTextIsTransformers) { ExpectMeanLoss(reference_, *rig_); }

TEST_F(RealModel, GradientNormOfAnEnglishTextIsTransformers) {
  ExpectGradientNorm(reference_, *rig_);
}

// The last boundary, by the engine's templates on the weights that the store holds.
AlignedMemory LastBoundary(const ModelConfig& config, TrainingRig& rig, const MicroBatch& batch) {
  const auto tokens = static_cast<int64_t>(batch.tokens.size());
  const auto templates = MakeModelTemplates(config, rig.layout(), ComputeDtype::kFloat32);
  MT_CHECK(templates.ok());
  const AlignedMemory scratch(
      WorkspaceBytes(config, ComputeDtype::kFloat32, tokens, tokens, tokens));
  const Workspace workspace = {scratch.data(), scratch.size_bytes()};
  const auto boundary_bytes = tokens * config.hidden_size * static_cast<int64_t>(sizeof(float));
  AlignedMemory input(boundary_bytes);
  AlignedMemory output(boundary_bytes);
  for (int unit = 0; unit < rig.layout().head_unit(); ++unit) {
    const int64_t elements = rig.layout().units[unit].element_count;
    const AlignedMemory weights(elements * static_cast<int64_t>(sizeof(float)));
    const HostStore::Access access = rig.store().BeginAccess(unit);
    JoinFloats(rig.store().hi(unit), rig.store().lo(unit),
               {weights.floats(), static_cast<size_t>(elements)});
    const absl::Status status =
        unit == 0
            ? (*templates)->EmbedForward(weights.data(), batch, output.data(), workspace)
            : (*templates)
                  ->LayerForward({.unit = unit, .weights = weights.data(), .input = input.data()},
                                 batch, output.data(), workspace);
    MT_CHECK(status.ok());
    std::swap(input, output);
  }
  return input;
}

// The logits of one hidden state [d], in fp64: norm and output matrix by their definitions.
std::vector<double> Logits(const ModelConfig& config, TrainingRig& rig, const float* hidden) {
  const ModelLayout& layout = rig.layout();
  const std::vector<double> norm = rig.Weights(
      layout.head_unit(), *layout.units[layout.head_unit()].Find(TensorRole::kFinalNorm));
  static const std::vector<double> matrix =
      rig.Weights(0, *layout.units[0].Find(TensorRole::kTokenTable));
  const auto width = static_cast<size_t>(config.hidden_size);
  double squares = 0;
  for (size_t i = 0; i < width; ++i) {
    squares += static_cast<double>(hidden[i]) * hidden[i];
  }
  const double scale = 1.0 / std::sqrt(squares / static_cast<double>(width) + config.norm_epsilon);
  std::vector<double> logits(config.vocab_size, 0.0);
  for (size_t v = 0; v < logits.size(); ++v) {
    for (size_t i = 0; i < width; ++i) {
      logits[v] += matrix[v * width + i] * norm[i] * scale * hidden[i];
    }
  }
  return logits;
}

// Equal largest logits at every position: greedy answers are the same too.
TEST_F(RealModel, LogitsAndGreedyChoicesAreTransformers) {
  const OwnedMicroBatch batch({&reference_.document, 1});
  const AlignedMemory boundary = LastBoundary(config_, *rig_, batch.View());
  const auto first = static_cast<int64_t>(reference_.document.tokens.size()) - kLogitRows;
  ASSERT_EQ(static_cast<int64_t>(logits_.size()), kLogitRows * config_.vocab_size);
  double difference = 0;
  double total = 0;
  for (int64_t row = 0; row < kLogitRows; ++row) {
    const std::vector<double> ours =
        Logits(config_, *rig_, boundary.floats() + (first + row) * config_.hidden_size);
    const std::span<const float> theirs =
        std::span(logits_).subspan(row * config_.vocab_size, config_.vocab_size);
    for (size_t v = 0; v < ours.size(); ++v) {
      difference += (ours[v] - theirs[v]) * (ours[v] - theirs[v]);
      total += static_cast<double>(theirs[v]) * theirs[v];
    }
    EXPECT_EQ(std::max_element(ours.begin(), ours.end()) - ours.begin(),
              std::max_element(theirs.begin(), theirs.end()) - theirs.begin())
        << "row " << row;
  }
  EXPECT_LT(std::sqrt(difference / total), 1e-4);
}

}  // namespace
}  // namespace megatrain
