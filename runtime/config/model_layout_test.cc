#include "runtime/config/model_layout.h"

#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;

ModelConfig SmallConfig(bool tied, bool bias) {
  ModelConfig config;
  config.architecture = bias ? "Qwen2ForCausalLM" : "LlamaForCausalLM";
  config.vocab_size = 33;
  config.hidden_size = 20;
  config.mlp_width = 28;
  config.layer_count = 2;
  config.head_count = 5;
  config.kv_head_count = 1;
  config.head_dim = 6;  // 30 query rows, which is not the hidden size
  config.max_positions = 64;
  config.qkv_bias = bias;
  config.tied = tied;
  config.layer_uses_window.assign(2, false);
  return config;
}

TEST(ModelLayoutTest, HoldsEveryParameterOnce) {
  for (bool tied : {false, true}) {
    for (bool bias : {false, true}) {
      ModelConfig config = SmallConfig(tied, bias);
      ModelLayout layout = MakeModelLayout(config);
      int64_t parameters = 0;
      std::set<std::string> names;
      for (const UnitLayout& unit : layout.units) {
        for (const TensorLayout& tensor : unit.tensors) {
          parameters += tensor.element_count;
          EXPECT_TRUE(names.insert(tensor.name).second) << tensor.name;
        }
      }
      EXPECT_EQ(parameters, config.ParameterCount());
      EXPECT_EQ(names.contains("lm_head.weight"), !tied);
      EXPECT_EQ(names.contains("model.layers.1.self_attn.k_proj.bias"), bias);
    }
  }
}

TEST(ModelLayoutTest, TensorsAreAlignedAndDoNotOverlap) {
  ModelLayout layout = MakeModelLayout(SmallConfig(false, true));
  int64_t total = 0;
  for (const UnitLayout& unit : layout.units) {
    int64_t end = 0;
    for (const TensorLayout& tensor : unit.tensors) {
      EXPECT_EQ(tensor.offset_elements % kTensorAlignmentElements, 0) << tensor.name;
      EXPECT_GE(tensor.offset_elements, end) << tensor.name;
      EXPECT_LT(tensor.offset_elements, end + kTensorAlignmentElements) << tensor.name;
      end = tensor.offset_elements + tensor.element_count;
      EXPECT_EQ(tensor.decays, tensor.shape.size() == 2) << tensor.name;
      EXPECT_EQ(unit.Find(tensor.role), &tensor);
    }
    EXPECT_EQ(unit.element_count % kTensorAlignmentElements, 0);
    EXPECT_GE(unit.element_count, end);
    total += unit.element_count;
    EXPECT_LE(unit.element_count, layout.LargestUnitElements());
  }
  EXPECT_EQ(layout.TotalElements(), total);
}

TEST(ModelLayoutTest, UnitsAndShapes) {
  ModelLayout layout = MakeModelLayout(SmallConfig(true, false));
  EXPECT_EQ(layout.layer_count(), 2);
  EXPECT_EQ(layout.head_unit(), 3);
  EXPECT_TRUE(layout.tied);
  EXPECT_EQ(layout.units[0].kind, UnitKind::kEmbedding);
  EXPECT_EQ(layout.units[2].layer_index, 1);
  EXPECT_EQ(layout.units[3].kind, UnitKind::kHead);
  EXPECT_EQ(layout.units[3].Find(TensorRole::kHead), nullptr);
  const TensorLayout* output = layout.units[2].Find(TensorRole::kOutput);
  ASSERT_NE(output, nullptr);
  EXPECT_EQ(output->name, "model.layers.1.self_attn.o_proj.weight");
  EXPECT_THAT(output->shape, ElementsAre(20, 30));
  EXPECT_EQ(layout.units[2].Find(TensorRole::kQueryBias), nullptr);
}

}  // namespace
}  // namespace megatrain
