#include "runtime/model/layer_groups.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "runtime/config/model_config.h"
#include "runtime/config/model_layout.h"
#include "runtime/config/shapes.h"
#include "runtime/model/model_templates.h"
#include "runtime/model/workspace_size.h"

namespace megatrain {
namespace {

constexpr int64_t kTokens = 8;
constexpr int kLayers = 4;
constexpr int kSize = 2;

// 64-byte aligned, as templates want it.
class Floats {
 public:
  explicit Floats(int64_t count) : memory_(count + 16) {}
  float* data() {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    return reinterpret_cast<float*>((address + 63) / 64 * 64);
  }

 private:
  std::vector<float> memory_;
};

std::vector<float> Draw(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 0.1f);
  std::vector<float> values(count);
  for (float& value : values) {
    value = normal(random);
  }
  return values;
}

class LayerGroupsTest : public ::testing::Test {
 protected:
  std::unique_ptr<ModelTemplates> Templates() {
    return MakeModelTemplates(config_, layout_, ComputeDtype::kFloat32).value();
  }

  Workspace NewWorkspace(int64_t size_bytes) {
    workspace_ = std::make_unique<Floats>(size_bytes / 4);
    return {.data = workspace_->data(), .size_bytes = size_bytes};
  }

  MicroBatch Batch() const {
    return {.tokens = tokens_, .positions = positions_, .document_offsets = offsets_};
  }

  const ModelConfig config_ = Resized(ShapeByName("tiny").value(), kLayers, 1).value();
  const ModelLayout layout_ = MakeModelLayout(config_);
  const int64_t layer_workspace_ =
      WorkspaceBytes(config_, ComputeDtype::kFloat32, kTokens, kTokens, kTokens);
  const int64_t group_workspace_ =
      layer_workspace_ + GroupWorkspaceBytes(kSize, kTokens, config_.hidden_size * 4);
  std::unique_ptr<Floats> workspace_;
  std::vector<int32_t> tokens_ = {1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<int32_t> positions_ = {0, 1, 2, 3, 4, 0, 1, 2};
  std::vector<int32_t> offsets_ = {0, 5, 8};
};

TEST_F(LayerGroupsTest, AGroupHoldsItsLayersOneAfterTheOther) {
  const ModelLayout groups = GroupLayers(layout_, kSize);
  ASSERT_EQ(groups.layer_count(), kLayers / kSize);
  EXPECT_EQ(groups.TotalElements(), layout_.TotalElements());
  for (int unit = 1; unit <= kLayers; ++unit) {
    const int64_t first = (unit - 1) % kSize * layout_.units[1].element_count;
    const UnitLayout& group = groups.units[1 + (unit - 1) / kSize];
    for (const TensorLayout& tensor : layout_.units[unit].tensors) {
      int found = 0;
      for (const TensorLayout& other : group.tensors) {
        found +=
            other.name == tensor.name && other.offset_elements == first + tensor.offset_elements
                ? 1
                : 0;
      }
      EXPECT_EQ(found, 1) << tensor.name;
    }
  }
  EXPECT_EQ(GroupLayers(layout_, 1).units.size(), layout_.units.size());
}

// Outputs, input gradients and weight gradients of the second group have the bits of its layers'.
TEST_F(LayerGroupsTest, AGroupComputesWhatItsLayersDo) {
  const auto layers = Templates();
  const auto groups = MakeGroupTemplates(Templates(), layout_, kSize, ComputeDtype::kFloat32);
  const int64_t layer_elements = layout_.units[1].element_count;
  const int64_t hidden = kTokens * config_.hidden_size;
  Floats weights(kSize * layer_elements);
  const std::vector<float> drawn = Draw(kSize * layer_elements, 1);
  std::copy(drawn.begin(), drawn.end(), weights.data());
  std::vector<Floats> x(kSize + 1, Floats(hidden));
  const std::vector<float> input = Draw(hidden, 2);
  std::copy(input.begin(), input.end(), x[0].data());
  const std::vector<float> gradient = Draw(hidden, 3);
  Floats wanted_hidden(hidden);
  std::copy(gradient.begin(), gradient.end(), wanted_hidden.data());
  Floats wanted_gradients(kSize * layer_elements);
  const Workspace workspace = NewWorkspace(group_workspace_);
  const auto layer = [&](int i) {
    return ModelTemplates::LayerArguments{
        .unit = 3 + i, .weights = weights.data() + i * layer_elements, .input = x[i].data()};
  };
  for (int i = 0; i < kSize; ++i) {
    ASSERT_TRUE(layers->LayerForward(layer(i), Batch(), x[i + 1].data(), workspace).ok());
  }
  for (int i = kSize - 1; i >= 0; --i) {
    ASSERT_TRUE(layers
                    ->LayerBackward(layer(i), Batch(), wanted_hidden.data(),
                                    wanted_gradients.data() + i * layer_elements, workspace)
                    .ok());
  }
  const ModelTemplates::LayerArguments group = {
      .unit = 2, .weights = weights.data(), .input = x[0].data()};
  Floats output(hidden);
  Floats hidden_gradient(hidden);
  std::copy(gradient.begin(), gradient.end(), hidden_gradient.data());
  Floats gradients(kSize * layer_elements);
  ASSERT_TRUE(groups->LayerForward(group, Batch(), output.data(), workspace).ok());
  ASSERT_TRUE(
      groups->LayerBackward(group, Batch(), hidden_gradient.data(), gradients.data(), workspace)
          .ok());
  const auto equal = [](Floats& a, Floats& b, int64_t count) {
    return std::equal(a.data(), a.data() + count, b.data());
  };
  EXPECT_TRUE(equal(output, x[kSize], hidden));
  EXPECT_TRUE(equal(hidden_gradient, wanted_hidden, hidden));
  EXPECT_TRUE(equal(gradients, wanted_gradients, kSize * layer_elements));
}

TEST_F(LayerGroupsTest, AWorkspaceWithoutRoomForBoundariesIsAnError) {
  const auto groups = MakeGroupTemplates(Templates(), layout_, kSize, ComputeDtype::kFloat32);
  Floats weights(kSize * layout_.units[1].element_count);
  Floats input(kTokens * config_.hidden_size);
  Floats output(kTokens * config_.hidden_size);
  EXPECT_EQ(groups
                ->LayerForward({.unit = 1, .weights = weights.data(), .input = input.data()},
                               Batch(), output.data(), NewWorkspace(64))
                .code(),
            absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace megatrain
